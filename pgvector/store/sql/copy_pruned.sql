-- An account that is separated from its person takes what was pruned meanwhile with it: nothing tells whose turns they were.
insert into memory_pruned_turns as p (agent_identity, session_id, content_key, times, at)
select %(destination)s, session_id, content_key, times, at from memory_pruned_turns where agent_identity = %(source)s
on conflict (agent_identity, session_id, content_key) do update
set times = p.times + excluded.times, at = greatest(p.at, excluded.at)
