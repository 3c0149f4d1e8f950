-- BM25 (Robertson and Zaragoza 2009) with term frequency taken as 1, terms ORed; document frequencies are counted over
-- the candidates themselves, and squared: a rare word counts in the question as in the row. Those are the newest rows that hold any term and, when there are more, for each term that
-- is scarce among them its newest rows: a common word must not hide the old rows of a rare one.
with terms as materialized (
  select ('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''')::tsquery as term
  from unnest(to_tsvector('english', %(words)s))
), question as materialized (
  select string_agg(term::text, ' | ')::tsquery as any_term, greatest(1, %(candidates)s / 4 / greatest(1, count(*))) as share from terms
), newest as materialized (
  select agent_identity, id, search, length(search) as terms_in_row
  from memory_entries
  where search @@ (select any_term from question)
    and (agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
  and (%(target)s = '' or target = %(target)s)
  and (%(since)s::timestamptz is null or updated_at >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or updated_at < %(until)s::timestamptz)
  order by created_at desc
  limit %(candidates)s
), newest_holds as materialized (
  select n.agent_identity, n.id, n.terms_in_row, t.term from newest n join terms t on n.search @@ t.term
), scarce as materialized (
  select t.term from terms t left join newest_holds h using (term)
  where (select count(*) from newest) >= %(candidates)s
  group by t.term
  having count(h.id) < (select share from question)
), older as materialized (
  select distinct on (o.agent_identity, o.id) o.agent_identity, o.id, o.search, length(o.search) as terms_in_row
  from scarce s
  cross join lateral (
    select agent_identity, id, search
    from memory_entries
    where search @@ s.term
      and (agent_identity = any (%(themes)s::text[])
      or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
    and (%(target)s = '' or target = %(target)s)
    and (%(since)s::timestamptz is null or updated_at >= %(since)s::timestamptz)
    and (%(until)s::timestamptz is null or updated_at < %(until)s::timestamptz)
    order by created_at desc
    limit (select share from question)
  ) as o
  where not exists (select from newest n where n.agent_identity = o.agent_identity and n.id = o.id)
), holds as materialized (
  select agent_identity, id, terms_in_row, term from newest_holds
  union all
  select o.agent_identity, o.id, o.terms_in_row, t.term from older o join terms t on o.search @@ t.term
), weights as (
  select term, power(ln(1 + (greatest(%(rows)s, count(*)) - count(*) + 0.5) / (count(*) + 0.5)), 2) as idf from holds group by term
), mean as (
  select avg(terms_in_row) as terms_in_row
  from (select terms_in_row from newest union all select terms_in_row from older) as candidates
)
select h.agent_identity, h.id, array_agg(trim('''' from term::text)) as words, array_agg(worth.of_term) as worth
from holds h join weights w using (term) cross join mean
cross join lateral (
  select (w.idf * (%(k1)s + 1) / (1 + %(k1)s * (1 - %(b)s + %(b)s * h.terms_in_row / mean.terms_in_row)))::float8 as of_term
) as worth
group by h.agent_identity, h.id
order by sum(worth.of_term) desc, h.agent_identity, h.id
limit %(limit)s
