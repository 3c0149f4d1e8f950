-- Turns of an archive, those that the theme lacks.
with given as (
  select distinct on (r.session_id, r.ts, r.role, r.content) g.place, g.words, g.vector, r.*
  from unnest(%(rows)s::text[], %(words)s::text[], %(vectors)b::halfvec[]) with ordinality
         as g (row, words, vector, place),
       jsonb_to_record(g.row::jsonb) as r (session_id text, parent_session_id text, role text, content text,
         ts timestamptz, metadata jsonb)
  order by r.session_id, r.ts, r.role, r.content, g.place
), fresh as (
  select g.* from given g
  where not exists (
    select 1 from conversations c
    where c.agent_identity = %(theme)s and c.session_id = g.session_id and c.ts = g.ts and c.role = g.role
      and c.content = g.content)
), added as (
  insert into conversations
    (agent_identity, session_id, parent_session_id, role, content, ts, embedding, search, metadata)
  select %(theme)s, g.session_id, g.parent_session_id, g.role, g.content, g.ts, g.vector,
         strip(to_tsvector('english', g.words)), g.metadata
  from fresh g
  where not %(dry)s
  order by g.place
  returning id, session_id, ts, role, content
)
select min(g.place) as place, a.id, true as fresh
from added a join given g using (session_id, ts, role, content) group by a.id
union all
select place, 0, true from fresh where %(dry)s
