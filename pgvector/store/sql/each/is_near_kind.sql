-- Rows with the same text are as near as the row itself.
select count(*) < %(limit)s as near
from (
  select embedding <=> %(vector)b::halfvec as distance from $table
  where embedding is not null and $current
  order by embedding <=> %(vector)b::halfvec
  limit %(limit)s
) as nearest
where distance < (
  select embedding <=> %(vector)b::halfvec from $table where agent_identity = %(theme)s and id = %(id)s) - 0.0001
