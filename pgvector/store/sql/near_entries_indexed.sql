-- For scopes too large to compare every row: the caller pins the graph index by transaction-local settings.
select agent_identity, id, 1 - (embedding <=> %(vector)b::halfvec) as score
from memory_entries
where embedding is not null
  and (agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
  and (%(target)s = '' or target = %(target)s)
  and (%(since)s::timestamptz is null or updated_at >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or updated_at < %(until)s::timestamptz)
order by embedding <=> %(vector)b::halfvec
limit %(limit)s
