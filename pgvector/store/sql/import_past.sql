-- Earlier versions of entries, those that the theme lacks.
insert into memory_history
  (agent_identity, entry_id, home, target, content, created_at, updated_at, metadata, gone_at, how, session_id, replaced_by,
   expires_at, tags)
select %(theme)s, g.entry_id, r.home, r.target, r.content, r.created_at, r.updated_at, r.metadata, r.gone_at, r.how,
       r.session_id, r.replaced_by, r.expires_at, r.tags
from unnest(%(rows)s::text[], %(entries)s::bigint[]) with ordinality as g (row, entry_id, place),
     jsonb_to_record(g.row::jsonb) as r (home text, target text, content text, created_at timestamptz,
       updated_at timestamptz, metadata jsonb, gone_at timestamptz, how text, session_id text, replaced_by text,
       expires_at timestamptz, tags text[])
where not exists (
  select 1 from memory_history h
  where h.agent_identity = %(theme)s and h.gone_at = r.gone_at and h.target = r.target and h.content = r.content
    and h.updated_at = r.updated_at and h.how = r.how)
order by g.place
returning 1
