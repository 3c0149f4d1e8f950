-- How many rows and chunks have this very vector, as far as up to a limit of each.
select count(*) as rows from (
  (select 1 from $table where embedding = %(vector)b::halfvec limit %(limit)s) union all
  (select 1 from $pieces where embedding = %(vector)b::halfvec limit %(limit)s)) as equal
