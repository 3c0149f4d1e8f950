-- BM25 (Robertson and Zaragoza 2009) with term frequency taken as 1, terms ORed and their weights squared (a word is rare
-- in the row and in the question), for a scope that is small enough to be
-- read whole: the rows that hold a term are counted. Should the scope have grown meanwhile, its newest rows are read.
with terms as materialized (
  select ('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''')::tsquery as term
  from unnest(to_tsvector('english', %(words)s))
), question as materialized (
  select terms.term as any_term, coalesce(terms.term && scope.term, terms.term) as in_scope
  from (select string_agg(term::text, ' | ')::tsquery as term from terms) as terms
  cross join (
    select string_agg('''@' || replace(replace(theme, '\', '\\'), '''', '''''') || '''', ' | ')::tsquery as term
    from unnest(%(themes)s::text[]) as theme
  ) as scope
), newest as materialized (
  select agent_identity, id, strip(search) as search
  from (
    select agent_identity, id, search
    from conversations
    where (%(session)s <> '' or (search || array_to_tsvector(array['@' || agent_identity])) @@ (select in_scope from question))
      and (agent_identity = any (%(themes)s::text[])
      or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
      and (%(session)s = '' or session_id = %(session)s)
      and (%(without_session)s = '' or session_id <> %(without_session)s)
      and (%(since)s::timestamptz is null or ts >= %(since)s::timestamptz)
      and (%(until)s::timestamptz is null or ts < %(until)s::timestamptz)
      and (%(role)s = '' or role = %(role)s)
    order by ts desc
    limit %(candidates)s
  ) as t
  where search @@ (select any_term from question)
), holds as materialized (
  select n.agent_identity, n.id, length(n.search) as terms_in_row, t.term from newest n join terms t on n.search @@ t.term
), weights as materialized (
  select term, power(ln(1 + (greatest(%(rows)s, count(*)) - count(*) + 0.5) / (count(*) + 0.5)), 2) as idf from holds group by term
), mean as materialized (
  select avg(length(search)) as terms_in_row from newest
)
select h.agent_identity, h.id, array_agg(trim('''' from term::text)) as words, array_agg(worth.of_term) as worth
from holds h join weights w using (term) cross join mean
cross join lateral (
  select (w.idf * (%(k1)s + 1) / (1 + %(k1)s * (1 - %(b)s + %(b)s * h.terms_in_row / mean.terms_in_row)))::float8 as of_term
) as worth
group by h.agent_identity, h.id
order by sum(worth.of_term) desc, h.agent_identity, h.id
limit %(limit)s
