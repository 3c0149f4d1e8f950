-- Rows with the same text are as near as the row itself.
select count(*) < %(limit)s as near
from (
  select embedding_next <=> %(vector)b::halfvec as distance from $table
  where embedding_next is not null and $current
  order by embedding_next <=> %(vector)b::halfvec
  limit %(limit)s
) as nearest
where distance < (select embedding_next <=> %(vector)b::halfvec from $table where agent_identity = %(theme)s and id = %(id)s) - 0.0001
