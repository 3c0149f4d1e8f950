-- Questions made of stored vectors: each lies between two of them, so that no row is its answer by itself.
with drawn as (
  select embedding, row_number() over (order by random()) as number
  from $table tablesample system (%(percent)s)
  where embedding is not null
    and $scope
  limit 2 * %(questions)s
)
select (a.embedding + b.embedding)::real[] as question
from drawn a join drawn b on b.number = a.number + 1 and a.number %% 2 = 1
limit %(questions)s
