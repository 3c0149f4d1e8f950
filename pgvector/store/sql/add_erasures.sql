-- The time after the lock: what was accepted before it is dropped.
insert into memory_erasures (agent_identity, key, kind, at)
select theme, key, kind, clock_timestamp()
from unnest(%(themes)s::text[], %(keys)s::bytea[], %(kinds)s::text[]) as m (theme, key, kind)
on conflict (agent_identity, key) do update set at = excluded.at
