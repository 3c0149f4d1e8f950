-- Every row of a scope that is small enough to be read whole: how near it is, how many terms it has, and which of the
-- question's it holds, as bits. Terms that are constants cost the server a third of terms that it would have to join.
select agent_identity, session, at, id, cosine, coalesce(length(search), 0) as terms, $held
from (
  select agent_identity, $session as session, date_part('epoch', $time) as at, id,
         nullif(1 - (embedding <=> %(vector)b::halfvec), 'NaN') as cosine,
         -- A copy of terms that are kept packed, as those of long texts are: each comparison would unpack them anew.
         $unpacked as search
  from $table
  where $scope
    and $narrow
  limit %(most)s
) as t
