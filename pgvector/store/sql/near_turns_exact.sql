-- Ordering by an expression that no index serves keeps the plan exact: every row of the scope is compared.
-- The cosine of a row of zeros is NaN, which Postgres would sort before all numbers.
select agent_identity, id, nullif(1 - (embedding <=> %(vector)b::halfvec), 'NaN') as score
from conversations
where embedding is not null
  and (agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
  and (%(session)s = '' or session_id = %(session)s)
  and (%(without_session)s = '' or session_id <> %(without_session)s)
  and (%(since)s::timestamptz is null or ts >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or ts < %(until)s::timestamptz)
  and (%(role)s = '' or role = %(role)s)
order by score desc nulls last, agent_identity, id
limit %(limit)s
