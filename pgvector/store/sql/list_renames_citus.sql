select agent_identity as old, theme as new, renamed_at, agent_identity in (
  select agent_identity from memory_entries where agent_identity in (select agent_identity from memory_renames) union
  select agent_identity from conversations where agent_identity in (select agent_identity from memory_renames) union
  select agent_identity from facts where agent_identity in (select agent_identity from memory_renames)) as unmoved
from memory_renames
where %(theme)s = '' or %(theme)s in (agent_identity, theme)
order by theme, agent_identity
limit %(limit)s
