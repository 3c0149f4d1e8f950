-- A scope that both themes have is open where it was open in one of them.
with gone as (
  delete from fact_scopes
  where agent_identity = %(source)s and label in (
    select label from fact_scopes
    where agent_identity = %(source)s and (%(account)s = '' or metadata ->> 'linked_account' = %(account)s)
    limit %(limit)s)
  returning *
)
insert into fact_scopes as s
  (agent_identity, label, session_id, opened_at, written_at, heard_at, closed_at, turn, silent, metadata)
select %(destination)s, label, session_id, opened_at, written_at, heard_at, closed_at, turn, silent,
       (metadata - 'linked_account') || %(mark)s::jsonb
from gone
on conflict (agent_identity, label) do update set
  written_at = greatest(s.written_at, excluded.written_at), heard_at = greatest(s.heard_at, excluded.heard_at),
  closed_at = case when s.closed_at is null or excluded.closed_at is null then null
                   else greatest(s.closed_at, excluded.closed_at) end,
  metadata = jsonb_set(s.metadata, '{sessions}',
    coalesce(excluded.metadata -> 'sessions', '{}') || coalesce(s.metadata -> 'sessions', '{}'))
