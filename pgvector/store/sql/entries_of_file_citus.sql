-- The same without a function, which a node could not run.
select agent_identity as theme, id, home, target, content, metadata,
       greatest('0001-01-03', least('9999-12-29', created_at)) as created_at,
       greatest('0001-01-03', least('9999-12-29', updated_at)) as updated_at,
       coalesce(tags, '{}') as tags,
       case when isfinite(expires_at) then greatest('0001-01-03', least('9999-12-29', expires_at)) end as expires_at
from memory_entries
where agent_identity = any (%(themes)s::text[]) and (agent_identity = %(theme)s or (home = %(home)s and home <> ''))
  and target = %(target)s and content_key(content) = any (array(select content_key(c) from unnest(%(contents)s::text[]) as c))
  and (expires_at is null or expires_at > now())
