select agent_identity as old, theme as new, renamed_at,
       exists (select 1 from memory_entries e where e.agent_identity = r.agent_identity)
       or exists (select 1 from conversations c where c.agent_identity = r.agent_identity)
       or exists (select 1 from facts f where f.agent_identity = r.agent_identity) as unmoved
from memory_renames r
where %(theme)s = '' or %(theme)s in (agent_identity, theme)
order by theme, agent_identity
limit %(limit)s
