-- The vectors of some rows and then of their chunks, in half precision as Postgres sends it, in base64.
select t.agent_identity as theme, t.id, array(
  select translate(encode(halfvec_send(v.embedding), 'base64'), chr(10), '')
  from (select -1 as piece, t.embedding union all
        select p.piece, p.embedding from $pieces p where p.agent_identity = t.agent_identity and p.row_id = t.id
          and (%(theme)s::text is null or p.agent_identity = %(theme)s)) as v
  order by v.piece) as vectors
from unnest(%(themes)s::text[], %(ids)s::bigint[]) as r (theme, id)
join $table t on t.agent_identity = r.theme and t.id = r.id
where t.embedding is not null and (%(theme)s::text is null or t.agent_identity = %(theme)s)
