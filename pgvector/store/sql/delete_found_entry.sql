-- Deletes the row that `find_entry` has found, unless it has changed meanwhile so that it would not be found any more. Tags and
-- expiry are those at its end: they may have changed, too.
delete from memory_entries
where agent_identity = %(theme)s and id = %(id)s and (updated_at <= %(at)s or home <> %(home)s or home = '')
  and metadata ->> 'origin' is distinct from 'remember'
returning agent_identity as theme, id, greatest('0001-01-03', least('9999-12-29', created_at)) as created_at,
          tags, metadata,
          case when isfinite(expires_at) then least('9999-12-29', expires_at) end as expires_at
