select t.agent_identity, t.id, $role as role, $text as content, t.search is not null as worded, $answers as answers
from $table t
where t.embedding is null and $current and t.id <> all (%(skip)s::bigint[])
order by t.id desc
limit %(limit)s
