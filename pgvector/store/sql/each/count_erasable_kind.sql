select agent_identity as theme, count(*) as rows, greatest('0001-01-03', least('9999-12-29', min($time))) as first,
       greatest('0001-01-03', least('9999-12-29', max($time))) as latest
from $table
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and (%(ids)s::bigint[] is null or id = any (%(ids)s::bigint[]))
  and (%(session)s = '' or $written_in = %(session)s)
  and (%(text)s = '' or $searched ilike %(text)s or $notes ilike %(noted)s)
group by agent_identity
order by agent_identity
