-- Locked, so that several processes share the work; what another one works on is left to it.
select agent_identity, id, content
from $table
where search is null
order by agent_identity, id
limit %(limit)s
for update skip locked
