-- The rows of `few` and `newest`, packed by theme, with what is known of the terms.
), candidates as materialized (
  select agent_identity, id, terms_in_row, held from few where held <> 0
  union all
  select agent_identity, id, terms_in_row, held from newest
  where held <> 0 and (agent_identity, id) not in (select agent_identity, id from few)
)
select agent_identity,
       string_agg(int8send(id), '') as ids,
       string_agg(int4send(terms_in_row), '') as lengths,
       string_agg(int8send(held), '') as held,
       (select rows from scope) as total,
       (select array_agg(plainto_tsquery('english', word)::text order by n)
        from unnest(%(words)s::text[]) with ordinality as w (word, n)) as terms,
       (select array_agg(t.rows order by w.n)
        from generate_series(1, cardinality(%(words)s::text[])) as w (n) left join terms t on t.n = w.n) as expected
from candidates
group by agent_identity
