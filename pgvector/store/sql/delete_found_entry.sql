-- Deletes the row that `find_entry` has found, unless it has changed meanwhile so that it would not be found any more.
delete from memory_entries
where agent_identity = %(theme)s and id = %(id)s and (updated_at <= %(at)s or home <> %(home)s or home = '')
  and metadata ->> 'origin' is distinct from 'remember'
returning agent_identity as theme, id
