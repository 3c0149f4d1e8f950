select t.agent_identity, t.id, t.role, t.content, t.search is not null as worded,
       (select p.content from conversations p
        where p.agent_identity = t.agent_identity and p.session_id = t.session_id and (p.ts, p.id) < (t.ts, t.id)
        order by p.ts desc, p.id desc limit 1) as answers
from conversations t
where t.embedding is null and t.id <> all (%(skip)s::bigint[])
order by t.id desc
limit %(limit)s
