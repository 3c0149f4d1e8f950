-- A fact opens its scope, unless it was written before the scope was closed or written to. The scope notes when each session
-- wrote to it last, as a number, because a cluster takes only immutable functions here; it begins a new list when that is long.
insert into fact_scopes as s (agent_identity, label, session_id, opened_at, written_at, heard_at, metadata)
values (%(theme)s, %(scope)s, %(session_id)s, %(at)s, %(at)s, %(at)s,
        %(metadata)s::jsonb || jsonb_build_object('sessions', jsonb_build_object(coalesce(%(session_id)s::text, ''), %(seconds)s::jsonb)))
on conflict (agent_identity, label) do update set
  session_id = case when excluded.written_at >= s.written_at then excluded.session_id else s.session_id end,
  turn = case when excluded.written_at < s.written_at or excluded.session_id = s.session_id then s.turn end,
  silent = case when excluded.written_at < s.written_at then s.silent else 0 end,
  opened_at = case when excluded.written_at > s.closed_at then excluded.written_at else s.opened_at end,
  closed_at = case when excluded.written_at > s.closed_at then null else s.closed_at end,
  written_at = greatest(s.written_at, excluded.written_at),
  heard_at = greatest(s.heard_at, excluded.heard_at),
  metadata = jsonb_set(s.metadata, '{sessions}',
    case when length(s.metadata ->> 'sessions') < 2000 then s.metadata -> 'sessions' else '{}' end
    || case when s.metadata -> 'sessions' -> excluded.session_id > excluded.metadata -> 'sessions' -> excluded.session_id
            then '{}' else excluded.metadata -> 'sessions' end)
returning closed_at is null and %(seconds)s::jsonb > coalesce(metadata -> 'closed', 'null') as open
