-- What was erased of a theme is erased of another one, too.
insert into memory_erasures as known (agent_identity, key, kind, at)
select %(destination)s, key, kind, at from memory_erasures where agent_identity = %(source)s
on conflict (agent_identity, key) do update set at = greatest(known.at, excluded.at)
