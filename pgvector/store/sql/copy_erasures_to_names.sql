-- What was erased of a theme is erased for the names that led to it, before they lead to another one.
insert into memory_erasures as known (agent_identity, key, kind, at)
select r.agent_identity, e.key, e.kind, e.at
from memory_renames r join memory_erasures e on e.agent_identity = r.theme
where r.theme = %(source)s
on conflict (agent_identity, key) do update set at = greatest(known.at, excluded.at)
