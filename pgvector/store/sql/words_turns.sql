-- BM25 (Robertson and Zaragoza 2009) with term frequency taken as 1, terms ORed; document frequencies are counted over
-- the matching rows themselves, of which the newest are ranked when there are too many.
with terms as materialized (
  select ('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''')::tsquery as term
  from unnest(to_tsvector('english', %(words)s))
), question as materialized (
  select string_agg(term::text, ' | ')::tsquery as any_term from terms
), matching as materialized (
  select agent_identity, id, search, length(search) as terms_in_row
  from conversations
  where search @@ (select any_term from question)
    and (agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
  and (%(session)s = '' or session_id = %(session)s)
  order by ts desc
  limit %(candidates)s
), holds as materialized (
  select m.agent_identity, m.id, m.terms_in_row, t.term from matching m join terms t on m.search @@ t.term
), weights as (
  select term, ln(1 + (greatest(%(rows)s, count(*)) - count(*) + 0.5) / (count(*) + 0.5)) as idf from holds group by term
), mean as (
  select avg(terms_in_row) as terms_in_row from matching
)
select h.agent_identity, h.id,
       sum(w.idf * (%(k1)s + 1) / (1 + %(k1)s * (1 - %(b)s + %(b)s * h.terms_in_row / mean.terms_in_row)))::float8 as score
from holds h join weights w using (term) cross join mean
group by h.agent_identity, h.id
order by score desc, h.agent_identity, h.id
limit %(limit)s
