-- Turns that match the filters of an operator, newest first. A filter that is empty or null matches every row.
select agent_identity as theme, id, content, metadata, greatest('0001-01-03', least('9999-12-29', ts)) as at,
       '' as target, '' as home, source, '{}'::text[] as tags, null::timestamptz as expires_at, role, session_id
from (
  select *, coalesce(metadata ->> 'origin', case when metadata ? 'replayed' then 'transcript'
    when metadata ? 'delegated_to' then 'delegation' else 'conversation' end) as source
  from conversations
) as c
where (%(theme)s = '' or agent_identity = %(theme)s)
  and (%(number)s::bigint is null or id = %(number)s)
  and (%(role)s = '' or role = %(role)s)
  and (%(session)s = '' or session_id = %(session)s)
  and (%(source)s = '' or source = %(source)s)
  and (%(text)s = '' or content ilike %(text)s)
  and (%(since)s::timestamptz is null or ts >= %(since)s)
  and (%(until)s::timestamptz is null or ts < %(until)s)
  and (%(before)s::timestamptz is null or (ts, id) < (%(before)s::timestamptz, %(before_id)s::bigint))
order by ts desc, id desc
limit %(limit)s
