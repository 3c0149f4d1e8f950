(%(session)s = '' or session_id = %(session)s)
  and (%(without_session)s = '' or session_id <> %(without_session)s or ts < %(without_since)s::timestamptz)
  and (%(since)s::timestamptz is null or ts >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or ts < %(until)s::timestamptz)
  and (%(role)s = '' or role = %(role)s)
  and (%(any_tags)s::text[] is null and %(all_tags)s::text[] is null or (agent_identity, session_id) in (
    select agent_identity, metadata ->> 'session_id' from memory_entries where $scope and $live and $tagged))
