select agent_identity as theme, count(*) as rows, greatest('0001-01-03', least('9999-12-29', min(gone_at))) as first,
       greatest('0001-01-03', least('9999-12-29', max(gone_at))) as latest
from memory_history
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and (%(ids)s::bigint[] is null or entry_id = any (%(ids)s::bigint[]))
  and (%(session)s = '' or %(session)s in (session_id, metadata ->> 'session_id'))
  and (%(text)s = '' or $notes ilike %(noted)s
    or content || ' ' || coalesce(replaced_by, '') || ' ' || coalesce(array_to_string(tags, ' '), '') ilike %(text)s)
group by agent_identity
order by agent_identity
