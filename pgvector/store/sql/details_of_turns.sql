select '{}'::bigint[] as replaces, embedding is not null as embedded, search is not null as worded,
       (select count(*) from conversation_pieces p where p.agent_identity = %(theme)s and p.row_id = c.id) as pieces,
       null::timestamptz as updated_at, parent_session_id
from conversations c
where agent_identity = %(theme)s and id = %(id)s
