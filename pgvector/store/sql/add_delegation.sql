with child as (
  insert into memory_agents (agent_identity, session_id, kind, first_seen, last_seen, metadata)
  values (%(theme)s, %(child_session_id)s, 'child', %(at)s, %(at)s, '{}')
  on conflict (agent_identity, session_id) do update set last_seen = greatest(memory_agents.last_seen, excluded.last_seen)
)
insert into memory_agent_edges
  (agent_identity, event_id, parent_session_id, child_session_id, task, result, at, metadata)
values (%(theme)s, %(id)s, %(session_id)s, %(child_session_id)s, %(task)s, %(result)s, %(at)s, %(metadata)s::jsonb)
