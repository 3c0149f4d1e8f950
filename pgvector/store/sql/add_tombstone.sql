insert into memory_tombstones (agent_identity, home, target, content_key, at)
values (%(theme)s, %(home)s, %(target)s, content_key(%(content)s), %(at)s)
on conflict (agent_identity, home, target, content_key) do update set at = greatest(memory_tombstones.at, excluded.at)
