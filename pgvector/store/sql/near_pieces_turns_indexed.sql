-- As for rows; several pieces of one text may come, nearest first.
select t.agent_identity, t.id, 1 - (p.embedding <=> %(vector)b::halfvec) as score
from conversation_pieces p
join conversations t on t.agent_identity = p.agent_identity and t.id = p.row_id
where (t.agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (t.agent_identity = %(own)s or t.agent_identity !~ %(reserved)s)))
  and (%(session)s = '' or t.session_id = %(session)s)
  and (%(without_session)s = '' or t.session_id <> %(without_session)s)
  and (%(since)s::timestamptz is null or t.ts >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or t.ts < %(until)s::timestamptz)
  and (%(role)s = '' or t.role = %(role)s)
order by p.embedding <=> %(vector)b::halfvec
limit %(limit)s
