-- A page of the rows that are to be erased. A filter that is empty or null matches every row.
select agent_identity as theme, id, $text as text
from $table
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and (%(ids)s::bigint[] is null or id = any (%(ids)s::bigint[]))
  and (%(session)s = '' or $written_in = %(session)s)
  and (%(text)s = '' or $searched ilike %(text)s or $notes ilike %(noted)s)
  and (agent_identity, id) > (%(after_theme)s, %(after_id)s::bigint)
  and id between %(id_min)s::bigint and %(last_id)s::bigint
order by agent_identity, id
limit %(limit)s
