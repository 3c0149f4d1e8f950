-- Rows with vectors, spread over all of them, with what is embedded for each.
select t.agent_identity as theme, t.id, $text as content, $answers as answers
from $table t
where t.embedding is not null and $current
order by hashint8extended(t.id, 0)
limit %(limit)s
