select agent_identity as theme, id, kind, target, scope, content, status, superseded_by, written_at, changed_at, used_at, uses,
       session_id, metadata
from facts
where agent_identity = %(theme)s and (%(scope)s::text is null or scope = %(scope)s)
  and status = any (%(statuses)s::text[]) and (%(before)s::bigint is null or id < %(before)s)
order by id desc
limit %(limit)s
