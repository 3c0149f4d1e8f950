with given as (
  select g.place, r.*
  from unnest(%(rows)s::text[]) with ordinality as g (row, place),
    jsonb_to_record(g.row::jsonb) as r (id bigint, event_id uuid, parent_session_id text, child_session_id text, task text,
      result text, at timestamptz, metadata jsonb)
), child as (
  insert into memory_agents (agent_identity, session_id, kind, first_seen, last_seen, metadata)
  select %(theme)s, child_session_id, 'child', min(at), max(at), '{}' from given group by child_session_id
  on conflict do nothing
), known as (
  select g.place from given g join memory_agent_edges e
    on e.agent_identity = %(theme)s and e.event_id is not distinct from g.event_id and e.at = g.at
   and e.child_session_id = g.child_session_id
)
insert into memory_agent_edges
  (agent_identity, event_id, parent_session_id, child_session_id, task, result, at, metadata)
select %(theme)s, g.event_id, g.parent_session_id, g.child_session_id, g.task, g.result, g.at, g.metadata
from given g
where not exists (select 1 from known k where k.place = g.place)
order by g.id
returning 1
