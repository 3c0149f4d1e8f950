-- Locked, so that several processes share the work; what another one works on is left to it.
select agent_identity, id, $text as content
from $table
where search is null and $current
order by agent_identity, id
limit %(limit)s
for update skip locked
