select coalesce(replaces, '{}') as replaces, embedding is not null as embedded, search is not null as worded,
       (select count(*) from memory_entry_pieces p where p.agent_identity = %(theme)s and p.row_id = e.id) as pieces,
       greatest('0001-01-03', least('9999-12-29', updated_at)) as updated_at, '' as parent_session_id
from memory_entries e
where agent_identity = %(theme)s and id = %(id)s
