-- Links of accounts to persons, of a person those of all accounts.
select r.theme, r.id, to_jsonb(r)::text as row
from (
  select agent_identity as theme, 0 as id, person, linked_at
  from memory_person_links
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]) or person = any (%(themes)s::text[]))
) as r
order by theme
