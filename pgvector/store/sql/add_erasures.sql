-- Without a time it is that after the lock: what was accepted before is dropped.
insert into memory_erasures (agent_identity, key, kind, at)
select theme, key, kind, coalesce(%(at)s::timestamptz, clock_timestamp())
from unnest(%(themes)s::text[], %(keys)s::bytea[], %(kinds)s::text[]) as m (theme, key, kind)
on conflict (agent_identity, key) do update set at = greatest(memory_erasures.at, excluded.at)
