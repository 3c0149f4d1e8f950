select t.agent_identity, t.id
from $table t
where t.embedding is not null and $current and (t.agent_identity, t.id) <> (%(theme)s, %(id)s)
order by t.embedding <=> (select o.embedding from $table o where o.agent_identity = %(theme)s and o.id = %(id)s)
limit %(limit)s
