-- The children of an account, in whose rows no account is marked: they go where the edges of their theme went.
with gone as (
  delete from memory_agents a
  where a.agent_identity = %(source)s and a.session_id in (
    select session_id from memory_agents
    where agent_identity = %(source)s
      and (%(account)s = '' or session_id in (
        select child_session_id from memory_agent_edges where agent_identity = %(destination)s))
    limit %(limit)s)
  returning *
)
insert into memory_agents (agent_identity, session_id, kind, first_seen, last_seen, metadata)
select %(destination)s, session_id, kind, first_seen, last_seen, metadata from gone
on conflict (agent_identity, session_id) do update set last_seen = greatest(memory_agents.last_seen, excluded.last_seen)
