-- Ordering by an expression that no index serves keeps the plan exact: every row of the scope is compared.
select agent_identity, id, 1 - (embedding <=> %(vector)s::halfvec) as score
from conversations
where embedding is not null
  and (agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
  and (%(session)s = '' or session_id = %(session)s)
order by score desc, agent_identity, id
limit %(limit)s
