-- Notes of turns that were pruned before the theme got another name. An account that was separated has some that its person has, too.
with gone as (
  delete from memory_pruned_turns where agent_identity = %(source)s returning session_id, content_key, times, at
)
insert into memory_pruned_turns as p (agent_identity, session_id, content_key, times, at)
select %(destination)s, session_id, content_key, times, at from gone
on conflict (agent_identity, session_id, content_key) do update
set times = greatest(p.times, excluded.times), at = greatest(p.at, excluded.at)
