-- By the index of the times alone.
select agent_identity as theme, at from memory_erasures order by at desc limit 1
