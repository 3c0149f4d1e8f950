-- A text that came too late to be an entry.
insert into memory_history
  (agent_identity, entry_id, target, content, created_at, updated_at, metadata, gone_at, how, session_id, replaced_by,
   tags, expires_at)
values (%(theme)s, %(id)s, %(target)s, %(content)s, %(at)s, %(at)s, %(metadata)s::jsonb, %(at)s, 'replaced',
        %(session_id)s, %(replaced_by)s, nullif(%(tags)s::text[], '{}'), %(expires_at)s::timestamptz)
