-- An index whose making failed is there, and not valid.
select count(*) as rows,
       coalesce((select indisvalid from pg_index where indexrelid = to_regclass(%(own_index)s)), false) as own_index,
       exists (select from conversation_pieces
               where agent_identity = any (%(themes)s::text[]) or %(themes)s::text[] is null) as pieces
from (
  select from conversations
  where (agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
  and (%(session)s = '' or session_id = %(session)s)
  and (%(without_session)s = '' or session_id <> %(without_session)s)
  and (%(since)s::timestamptz is null or ts >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or ts < %(until)s::timestamptz)
  and (%(role)s = '' or role = %(role)s)
  limit %(limit)s) as counted
