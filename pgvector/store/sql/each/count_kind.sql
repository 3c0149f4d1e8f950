-- An index whose making failed is there, and not valid.
select count(*) as rows,
       coalesce((select indisvalid from pg_index where indexrelid = to_regclass(%(own_index)s)), false) as own_index,
       exists (select 1 from $pieces
               where agent_identity = any (%(themes)s::text[]) or %(themes)s::text[] is null) as pieces
from (
  select 1 from $table
  where $scope
  and $counted
  limit %(limit)s) as counted
