-- Of `terms`, those that few rows are expected to hold, and pairs of common ones: what the index is asked for.
), rare as materialized (
  select term from (select term, sum(coalesce(rows, 0)) over (order by rows nulls first, term) as expected from terms) as t
  where expected <= %(candidates)s / 4
), common as materialized (
  select term, rows from terms where term not in (select term from rare) order by rows, term limit 8
), paired as materialized (
  select term
  from (
    select a.term && b.term as term,
           sum(a.rows * b.rows / scope.rows) over (order by a.rows * b.rows, a.term, b.term) as expected
    from common a join common b on a.term < b.term cross join scope
  ) as pairs
  where expected <= %(candidates)s / 4
), driving as materialized (
  select coalesce(few.term && owners.term, few.term) as terms
  from (
    select string_agg('(' || term::text || ')', ' | ')::tsquery as term
    from (select term from rare union all select term from paired) as t
  ) as few
  cross join owners
