-- BM25 (Robertson and Zaragoza 2009) with term frequency taken as 1, terms ORed and their weights squared (a word is
-- rare in the row and in the question), for a scope that is small enough to be read whole: the rows that hold a term
-- are counted. Should the scope have grown meanwhile, its newest rows are read.
with terms as materialized (
  select n, lexeme, ('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''')::tsquery as term
  from unnest(to_tsvector('english', %(words)s)) with ordinality as t (lexeme, positions, weights, n)
), question as materialized (
  select coalesce(terms.term && scope.term, terms.term) as in_scope
  from (select string_agg(term::text, ' | ')::tsquery as term from terms) as terms
  cross join (
    select string_agg('''@' || replace(replace(theme, '\', '\\'), '''', '''''') || '''', ' | ')::tsquery as term
    from unnest(%(themes)s::text[]) as theme
  ) as scope
), newest as materialized (
  select agent_identity, id, length(search) as terms_in_row,
         array(select n from terms where t.search @@ term) as held
  from (
    select agent_identity, id, strip(search) as search
    from $table
    -- Some hundred rows are read sooner than looked up in the index of words.
    where (%(session)s <> '' or %(rows)s::int <= %(read)s or (search || array_to_tsvector(array['@' || agent_identity])) @@ (select in_scope from question))
      and $scope
      and $narrow
    order by $time desc
    limit %(candidates)s
  ) as t
), candidates as materialized (
  select agent_identity, id, terms_in_row, held from newest where held <> '{}'
), alike as materialized (
  select held, count(*) as rows from candidates group by held
), weights as materialized (
  select array_agg(lexeme order by n) as lexemes,
         array_agg(power(ln(1 + (greatest(%(rows)s, rows) - rows + 0.5) / (rows + 0.5)), 2) order by n) as idf
  from (
    select t.n, t.lexeme, coalesce(sum(h.rows), 0)::float8 as rows
    from terms t left join (select unnest(held) as n, rows from alike) as h using (n)
    group by t.n, t.lexeme
  ) as counts
$best
