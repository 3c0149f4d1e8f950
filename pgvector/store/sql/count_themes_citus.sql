-- The entries and turns of some themes.
select t.theme, coalesce(e.rows, 0) as entries, coalesce(c.rows, 0) as turns
from unnest(%(themes)s::text[]) as t (theme)
left join (
  select agent_identity, count(*) as rows from memory_entries
  where agent_identity = any (%(themes)s::text[]) group by agent_identity) as e on e.agent_identity = t.theme
left join (
  select agent_identity, count(*) as rows from conversations
  where agent_identity = any (%(themes)s::text[]) group by agent_identity) as c on c.agent_identity = t.theme
order by t.theme
