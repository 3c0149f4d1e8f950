-- Every row of a scope that is small enough to be read whole: how near it is, how many terms it has, and which of the
-- question's it holds, as bits. Terms that are constants cost the server a third of terms that it would have to join.
select agent_identity, $session as session, date_part('epoch', $time) as at, id,
       nullif(1 - (embedding <=> %(vector)b::halfvec), 'NaN') as cosine,
       coalesce(length(search), 0) as terms,
       $held
from $table
where $scope
  and $narrow
limit %(most)s
