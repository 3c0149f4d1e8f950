), worths as materialized (
  select held, sum(idf[n]) as of_words from (select held, unnest(held) as n from alike) as h cross join weights group by held
), mean as materialized (
  select avg(terms_in_row)::float8 as terms_in_row from candidates
), best as materialized (
  select agent_identity, id, held, brevity, brevity * of_words as score
  from (
    select agent_identity, id, held,
           (%(k1)s + 1) / (1 + %(k1)s * (1 - %(b)s + %(b)s * c.terms_in_row / mean.terms_in_row)) as brevity
    from candidates c cross join mean
  ) as c
  join worths using (held)
  order by score desc, agent_identity, id
  limit %(limit)s
)
select agent_identity, id, array(select lexemes[n] from unnest(held) as n) as words,
       array(select idf[n] * brevity from unnest(held) as n) as worth
from best cross join weights
order by score desc, agent_identity, id
