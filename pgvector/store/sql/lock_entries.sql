-- Entries of a group that nobody else works on, locked in the order of their ids.
select id, content, home, metadata ->> 'origin' as origin, tags, replaces,
       greatest('0001-01-03', least('9999-12-29', updated_at)) as updated_at
from memory_entries
where agent_identity = %(theme)s and id = any (%(ids)s::bigint[]) and expires_at is null
order by id
for update skip locked
