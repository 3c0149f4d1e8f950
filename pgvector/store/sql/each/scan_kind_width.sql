-- Every row of a scope that is small enough to be read whole: how near it is, how many terms it has, and which of the
-- question's it holds, as bits. The numbers of a theme are one array of bytes a column, in which none may be null: rows
-- cost more to send and to read than to find. A session is told by a number, which is its theme's alone. Terms that are
-- constants cost the server a third of terms that it would have to join.
select agent_identity,
       string_agg(int8send(id), '') as ids,
       string_agg(int8send(session), '') as sessions,
       string_agg(float8send(at), '') as times,
       string_agg(float8send(cosine), '') as cosines,
       string_agg(int4send(terms), '') as lengths,
       string_agg(int8send(held), '') as held,
       string_agg(int8send(held_beyond), '') as held_beyond,
       string_agg(xidsend(version), '') as versions
from (
  select agent_identity, session, at, id, version, cosine, coalesce(length(search), 0) as terms, $held
  from (
    select agent_identity, id, xmin as version,
           hashtextextended($session, hashtextextended(agent_identity, 0)) as session,
           date_part('epoch', $time) as at,
           coalesce(1 - (embedding <=> %(vector)b::halfvec), 'NaN') as cosine,
           -- A copy of terms that are kept packed, as those of long texts are: each comparison would unpack them anew.
           $unpacked as search
    from $table
    where $scope
      and $narrow
    limit %(most)s
  ) as t
) as t
group by agent_identity
