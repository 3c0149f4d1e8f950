-- Entries that match the filters of an operator, newest first. A filter that is empty or null matches every row.
select agent_identity as theme, id, content, metadata, greatest('0001-01-03', least('9999-12-29', created_at)) as at,
       target, home, source, coalesce(tags, '{}') as tags,
       case when isfinite(expires_at) then greatest('0001-01-03', least('9999-12-29', expires_at)) end as expires_at,
       '' as role, coalesce(metadata ->> 'session_id', '') as session_id
from (
  select *,
         coalesce(nullif(metadata ->> 'client', ''), metadata ->> 'origin',
                  case metadata - 'released' when '{}' then 'database' else 'memory tool' end) as source
  from memory_entries
) as e
where (%(theme)s = '' or agent_identity = %(theme)s)
  and (%(number)s::bigint is null or id = %(number)s)
  and (%(target)s = '' or target = %(target)s)
  and (%(session)s = '' or metadata ->> 'session_id' = %(session)s)
  and (%(source)s = '' or source = %(source)s)
  and (%(tags)s::text[] is null or tags && %(tags)s::text[])
  and (%(text)s = '' or content ilike %(text)s)
  and (%(since)s::timestamptz is null or created_at >= %(since)s)
  and (%(until)s::timestamptz is null or created_at < %(until)s)
  and (%(before)s::timestamptz is null or (created_at, id) < (%(before)s::timestamptz, %(before_id)s::bigint))
  and (expires_at is null or expires_at > now())
order by created_at desc, id desc
limit %(limit)s
