-- Every row of a scope that is small enough to be read whole: its cosine to the question, how many terms it has, and which
-- terms of the question it holds, as bits. Each column of a theme is one byte string of big-endian numbers, because a
-- thousand single rows take longer to send and to read than to find. A session is a number, unique across themes. No
-- number may be null. `pieces` are the ids of rows, each with the cosine of one of its pieces: those of all rows of the
-- theme, unless the scope may have few of them. `terms` are those of the words of the question, empty for a stop-word.
select agent_identity,
       string_agg(int8send(id), '') as ids,
       string_agg(int8send(session), '') as sessions,
       string_agg(float8send(at), '') as times,
       string_agg(float8send(cosine), '') as cosines,
       string_agg(int4send(terms), '') as lengths,
       string_agg(int8send(held), '') as held,
       (select string_agg(int8send(row_id) || float8send(1 - (embedding <=> %(vector)b::halfvec)), '')
        from $pieces where agent_identity = t.agent_identity and %(vector)b::halfvec is not null
          and (not %(narrow)s or row_id = any (array_agg(t.id)))
          and (%(theme)s::text is null or agent_identity = %(theme)s)) as pieces,
       (select array_agg(plainto_tsquery('english', word)::text order by n)
        from unnest(%(words)s::text[]) with ordinality as w (word, n)) as terms
from (
  select agent_identity, session, at, id, cosine, coalesce(length(search), 0) as terms, $held
  from (
    select agent_identity, id,
           hashtextextended($session, hashtextextended(agent_identity, 0)) as session,
           date_part('epoch', $time) as at,
           coalesce(1 - (embedding <=> %(vector)b::halfvec), 'NaN') as cosine,
           -- A copy where Postgres stores the terms compressed: each comparison would decompress them again.
           $unpacked as search
    from $table
    where $scope
      and $narrow
    limit %(limit)s
  ) as t
) as t
group by agent_identity
