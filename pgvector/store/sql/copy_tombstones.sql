insert into memory_tombstones (agent_identity, home, target, content_key, at)
select %(destination)s, home, target, content_key, at from memory_tombstones where agent_identity = %(source)s
on conflict (agent_identity, home, target, content_key) do update set at = greatest(memory_tombstones.at, excluded.at)
