-- The places of those turns of an archive that the theme has.
select g.place
from unnest(%(rows)s::text[]) with ordinality as g (row, place),
     jsonb_to_record(g.row::jsonb) as r (session_id text, role text, content text, ts timestamptz)
where exists (
  select 1 from conversations c
  where c.agent_identity = %(theme)s and c.session_id = r.session_id and c.ts = r.ts and c.role = r.role
    and c.content = r.content)
