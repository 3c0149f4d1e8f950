-- The themes with turns, entries or facts.
select agent_identity as theme from conversations group by agent_identity
union
select agent_identity from memory_entries group by agent_identity
union
select agent_identity from facts group by agent_identity
order by theme
