-- Without a lock, which Citus allows in a single theme only: a lease has one process do the work.
select agent_identity, id, $text as content
from $table
where search is null and $current
order by agent_identity, id
limit %(limit)s
