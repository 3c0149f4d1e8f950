-- BM25 (Robertson and Zaragoza 2009) with term frequency taken as 1, terms ORed and their inverse document frequencies
-- to a power, for a scope that is too large to be read whole. Looked through are its newest rows, and those that the
-- index brings: the rows with a scarce term and those with two common ones, as far as they are expected to be few. How
-- many rows hold a common term is known from memory_words, or guessed from the newest rows as long as most of the scope
-- has not been counted. Which terms a row holds is told as bits.
with asked as materialized (
  select q.n::int as n, q.lexeme, q.term, w.rows
  from unnest(%(lexemes)s::text[], %(terms)s::tsquery[]) with ordinality as q (lexeme, term, n)
  cross join lateral (
    select sum(m.rows)::float8 as rows from memory_words m
    where m.agent_identity = any (coalesce(%(themes)s::text[], '{""}')) and m.kind = '$kind' and m.word = q.lexeme
  ) as w
), scope as materialized (
  select greatest(%(rows)s, counted)::float8 as rows, counted is null or 2 * counted < %(rows)s as uncounted,
         1 + %(candidates)s / 4 / greatest(1, cardinality(%(themes)s::text[])) as newest
  from (
    select sum(m.rows) as counted from memory_words m
    where m.agent_identity = any (coalesce(%(themes)s::text[], '{""}')) and m.kind = '$kind' and m.word = ''
  ) as total
), newest as materialized (
  select agent_identity, id, length(search) as terms_in_row, $held
  from (
    select r.agent_identity, r.id, r.search
    from unnest(%(themes)s::text[]) as theme
    cross join lateral (
      -- A copy of terms that are kept packed, as those of long texts are: each comparison would unpack them anew.
      select agent_identity, id, $unpacked as search
      from $table
      where agent_identity = theme
        and $narrow
      order by $time desc
      limit (select newest from scope)
    ) as r
    union all
    (select agent_identity, id, $unpacked as search
     from $table
     where %(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)
       and $narrow
     order by $time desc
     limit (select newest from scope))
  ) as t
), terms as materialized (
  select a.n, a.lexeme, a.term, coalesce(a.rows, case when scope.uncounted then (
    select count(*) * scope.rows / (%(candidates)s / 4) from newest where $holds having count(*) > 2) end) as rows
  from asked a cross join scope
), scarce as materialized (
  select term from (select term, sum(coalesce(rows, 0)) over (order by rows nulls first, term) as expected from terms) as t
  where expected <= %(candidates)s / 4
), common as materialized (
  select term, rows from terms where term not in (select term from scarce) order by rows, term limit 8
), paired as materialized (
  select term
  from (
    select a.term && b.term as term,
           sum(a.rows * b.rows / scope.rows) over (order by a.rows * b.rows, a.term, b.term) as expected
    from common a join common b on a.term < b.term cross join scope
  ) as pairs
  where expected <= %(candidates)s / 4
), driving as materialized (
  select coalesce(few.term && themes.term, few.term) as terms
  from (
    select string_agg('(' || term::text || ')', ' | ')::tsquery as term
    from (select term from scarce union all select term from paired) as t
  ) as few
  cross join (
    select string_agg('''@' || replace(replace(theme, '\', '\\'), '''', '''''') || '''', ' | ')::tsquery as term
    from unnest(%(themes)s::text[]) as theme
  ) as themes
), few as materialized (
  select agent_identity, id, length(search) as terms_in_row, $held
  from (
    select agent_identity, id, $unpacked as search
    from $table
    where (search || array_to_tsvector(array['@' || agent_identity])) @@ (select terms from driving)
      -- An expression, because the index of themes would bring all rows of a theme.
      and (agent_identity || '' = any (%(themes)s::text[])
      or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
      and $narrow
    order by $time desc
    limit %(candidates)s
  ) as t
), candidates as materialized (
  select agent_identity, id, terms_in_row, held, held_beyond from few where (held, held_beyond) <> (0, 0)
  union all
  select agent_identity, id, terms_in_row, held, held_beyond from newest
  where (held, held_beyond) <> (0, 0) and (agent_identity, id) not in (select agent_identity, id from few)
), alike as materialized (
  select held, held_beyond, rows, array(select a.n from asked a where $holds) as terms
  from (select held, held_beyond, count(*) as rows from candidates group by held, held_beyond) as c
), weights as materialized (
  select array_agg(lexeme order by n) as lexemes,
         array_agg(power(ln(1 + (greatest(scope.rows, counts.rows) - counts.rows + 0.5) / (counts.rows + 0.5)), %(idf_power)s)
           order by n) as idf
  from (
    select t.n, t.lexeme, greatest(t.rows, sum(h.rows))::float8 as rows
    from terms t left join (select unnest(terms) as n, rows from alike) as h using (n)
    group by t.n, t.lexeme, t.rows
  ) as counts cross join scope
), worths as materialized (
  select held, held_beyond, terms, (select sum(idf[n]) from unnest(terms) as n) as of_words from alike cross join weights
), mean as materialized (
  select avg(terms_in_row)::float8 as terms_in_row from candidates
), best as materialized (
  select agent_identity, id, terms, brevity, brevity * of_words as score
  from (
    select agent_identity, id, held, held_beyond,
           (%(k1)s + 1) / (1 + %(k1)s * (1 - %(b)s + %(b)s * c.terms_in_row / mean.terms_in_row)) as brevity
    from candidates c cross join mean
  ) as c
  join worths using (held, held_beyond)
  order by score desc, agent_identity, id
  limit %(limit)s
)
select agent_identity, id, terms, array(select idf[n] * brevity from unnest(terms) as n) as worth
from best cross join weights
order by score desc, agent_identity, id
