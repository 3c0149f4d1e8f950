-- Marks of what was erased, of a theme also those of its old names and of the accounts of a person.
select r.theme, r.id, to_jsonb(r)::text as row
from (
  select agent_identity as theme, 0 as id, key, kind, at
  from memory_erasures
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[])
    or agent_identity in (
    select n.agent_identity from memory_renames n where n.theme = any (%(themes)s::text[]) union
    select l.agent_identity from memory_person_links l where l.person = any (%(themes)s::text[])))
) as r
order by theme, key
