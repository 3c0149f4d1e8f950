-- For scopes too large to compare every row: the caller pins the graph index by transaction-local settings.
select agent_identity, id, 1 - (embedding <=> %(vector)b::halfvec) as score
from conversations
where embedding is not null
  and (agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
  and (%(session)s = '' or session_id = %(session)s)
  and (%(without_session)s = '' or session_id <> %(without_session)s)
  and (%(since)s::timestamptz is null or ts >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or ts < %(until)s::timestamptz)
  and (%(role)s = '' or role = %(role)s)
order by embedding <=> %(vector)b::halfvec
limit %(limit)s
