-- Withdrawn turns, by the hash of their texts.
delete from memory_withdrawals
where (agent_identity, session_id, role, content_key) in (
  select agent_identity, session_id, role, content_key from memory_withdrawals t
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and %(ids)s::bigint[] is null
  and %(text)s = '' and (%(session)s = '' or session_id = %(session)s or %(session)s = any (sessions))
  limit %(limit)s)
