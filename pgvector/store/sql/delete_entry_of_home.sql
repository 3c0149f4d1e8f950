-- A line that is gone from a file goes from all themes of the home that had saved it.
delete from memory_entries
where home = %(home)s and home <> '' and target = %(target)s and content_key(content) = content_key(%(content)s)
  and updated_at <= %(at)s and metadata ->> 'origin' is distinct from 'remember'
returning agent_identity, id
