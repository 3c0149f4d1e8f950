-- Earlier versions of entries, those that the theme lacks.
with given as (
  select g.place, g.entry_id, r.*
  from unnest(%(rows)s::text[], %(entries)s::bigint[]) with ordinality as g (row, entry_id, place),
       jsonb_to_record(g.row::jsonb) as r (home text, target text, content text, created_at timestamptz,
         updated_at timestamptz, metadata jsonb, gone_at timestamptz, how text, session_id text, replaced_by text,
         expires_at timestamptz, tags text[])
), known as (
  select g.place from given g join memory_history h
    on h.agent_identity = %(theme)s and h.gone_at = g.gone_at and h.target = g.target and h.content = g.content
   and h.updated_at = g.updated_at and h.how = g.how
)
insert into memory_history
  (agent_identity, entry_id, home, target, content, created_at, updated_at, metadata, gone_at, how, session_id, replaced_by,
   expires_at, tags)
select %(theme)s, g.entry_id, g.home, g.target, g.content, g.created_at, g.updated_at, g.metadata, g.gone_at, g.how,
       g.session_id, g.replaced_by, g.expires_at, g.tags
from given g
where not exists (select 1 from known k where k.place = g.place)
order by g.place
returning 1
