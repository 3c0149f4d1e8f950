-- The rows of a large theme that may be the best by the words of a question, with the terms that each of them holds. They
-- are its newest rows, and those that the index finds: the rows with a rare term and those with two common ones, as far
-- as they are expected to be few. How many rows hold a common term is in memory_words. As long as most of the scope has
-- not been counted, it is estimated from the newest rows, or counted up to a bound. `expected` has these numbers, null for
-- a word without one, and `total` is the number of rows of the scope. The other columns are as those of a scan.
with asked as materialized (
  select q.n::int as n, q.lexeme, q.term, w.rows
  from (
    select distinct on (lexeme) n, lexeme, plainto_tsquery('english', word) as term
    from unnest(%(words)s::text[]) with ordinality as w (word, n)
    cross join unnest(tsvector_to_array(to_tsvector('english', word))) as lexeme
    order by lexeme, n
  ) as q
  cross join lateral (
    select sum(m.rows)::float8 as rows from memory_words m
    where m.agent_identity = %(theme)s and m.kind = '$kind' and m.word = q.lexeme
  ) as w
), scope as materialized (
  select greatest(%(rows)s, counted)::float8 as rows, counted is null or 2 * counted < %(rows)s as uncounted,
         1 + %(candidates)s / 4 as newest
  from (
    select sum(m.rows) as counted from memory_words m
    where m.agent_identity = %(theme)s and m.kind = '$kind' and m.word = ''
  ) as total
), newest as materialized (
  select agent_identity, id, length(search) as terms_in_row, $held
  from (
    -- A copy where Postgres stores the terms compressed: each comparison would decompress them again.
    select agent_identity, id, $unpacked as search
    from $table
    where agent_identity = %(theme)s
      and $narrow
    order by $time desc
    limit (select newest from scope)
  ) as t
), owners as materialized (
  select ('''@' || replace(replace(%(theme)s::text, '\', '\\'), '''', '''''') || '''')::tsquery as term
), terms as materialized (
  select a.n, a.lexeme, a.term, coalesce(a.rows, greatest(guess.rows, (
    -- Older rows may be about something else.
    select case when count(*) > %(candidates)s / 4 then scope.rows else count(*) end
    from (
      select 1 from $table
      where (search || array_to_tsvector(array['@' || agent_identity])) @@ coalesce(a.term && owners.term, a.term)
        and agent_identity = %(theme)s
        and $current
      limit %(candidates)s / 4 + 1
    ) as holders
    where scope.uncounted and scope.rows > %(candidates)s and coalesce(guess.rows, 0) <= %(candidates)s / 4
    having count(*) > 0))) as rows
  from asked a cross join scope cross join owners
  left join lateral (
    select count(*) * scope.rows / (%(candidates)s / 4) as rows
    from newest where held >> a.n - 1 & 1 = 1 having count(*) > 2
  ) as guess on scope.uncounted
$driving_terms
), few as materialized (
  select agent_identity, id, length(search) as terms_in_row, $held
  from (
    select agent_identity, id, $unpacked as search
    from $table
    where (search || array_to_tsvector(array['@' || agent_identity])) @@ (select terms from driving)
      and agent_identity = %(theme)s
      and $narrow
    order by $time desc
    limit %(candidates)s
  ) as t
$packed_candidates
