-- Ordering by an expression that no index serves keeps the plan exact: every row of the scope is compared.
-- The cosine of a row of zeros is NaN, which Postgres would sort before all numbers.
select agent_identity, id, nullif(1 - (embedding <=> %(vector)b::halfvec), 'NaN') as score
from memory_entries
where embedding is not null
  and (agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
  and (%(target)s = '' or target = %(target)s)
  and (%(since)s::timestamptz is null or updated_at >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or updated_at < %(until)s::timestamptz)
order by score desc nulls last, agent_identity, id
limit %(limit)s
