-- The themes with turns, entries or facts, by as many index look-ups as there are themes.
with recursive turns as (
  (select agent_identity from conversations order by agent_identity limit 1)
  union all
  select (select c.agent_identity from conversations c where c.agent_identity > t.agent_identity
          order by c.agent_identity limit 1)
  from turns t where t.agent_identity is not null
), entries as (
  (select agent_identity from memory_entries order by agent_identity limit 1)
  union all
  select (select e.agent_identity from memory_entries e where e.agent_identity > t.agent_identity
          order by e.agent_identity limit 1)
  from entries t where t.agent_identity is not null
), known as (
  (select agent_identity from facts order by agent_identity limit 1)
  union all
  select (select f.agent_identity from facts f where f.agent_identity > t.agent_identity
          order by f.agent_identity limit 1)
  from known t where t.agent_identity is not null
)
select agent_identity as theme from turns where agent_identity is not null
union
select agent_identity from entries where agent_identity is not null
union
select agent_identity from known where agent_identity is not null
order by theme
