-- The names, beside its own, that rows of the place of each of these themes may still have: the accounts of a person, and old
-- names of both.
with asked as (
  select distinct coalesce(l.person, r.theme, t.name) as place
  from unnest(%(themes)s::text[]) as t (name)
  left join memory_renames r on r.agent_identity = t.name
  left join memory_person_links l on l.agent_identity = coalesce(r.theme, t.name)
), named as (
  select a.place, l.agent_identity as name from asked a join memory_person_links l on l.person = a.place
), old as (
  select n.place, r.agent_identity as name
  from (select place, place as name from asked union all select place, name from named) as n
  join memory_renames r on r.theme = n.name
)
select place, array_agg(name order by name) as names
from (select place, name from named union select place, name from old) as n
group by place
