-- The time after the lock, as in `add_link`.
insert into memory_person_links (agent_identity, person, linked_at)
select %(theme)s, r.person, clock_timestamp()
from unnest(%(rows)s::text[]) as g (row), jsonb_to_record(g.row::jsonb) as r (person text)
on conflict do nothing
returning 1
