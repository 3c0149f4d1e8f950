-- The entries and turns of some themes; counted by index alone.
select t.theme, e.rows as entries, c.rows as turns
from unnest(%(themes)s::text[]) as t (theme)
cross join lateral (select count(*) as rows from memory_entries where agent_identity = t.theme) as e
cross join lateral (select count(*) as rows from conversations where agent_identity = t.theme) as c
order by t.theme
