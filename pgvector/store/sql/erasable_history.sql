-- A page of the earlier texts of entries that are to be erased.
select agent_identity as theme, id, content as text
from memory_history
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and (%(ids)s::bigint[] is null or entry_id = any (%(ids)s::bigint[]))
  and (%(session)s = '' or %(session)s in (session_id, metadata ->> 'session_id'))
  and (%(text)s = '' or $notes ilike %(noted)s
    or content || ' ' || coalesce(replaced_by, '') || ' ' || coalesce(array_to_string(tags, ' '), '') ilike %(text)s)
  and (agent_identity, id) > (%(after_theme)s, %(after_id)s::bigint)
  and id between %(id_min)s::bigint and %(last_id)s::bigint
order by agent_identity, id
limit %(limit)s
