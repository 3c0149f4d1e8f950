-- An entry that is gone from a file is deleted in all themes of the home that saved it.
delete from memory_entries
where home = %(home)s and home <> '' and target = %(target)s and content_key(content) = content_key(%(content)s)
  and (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and updated_at <= %(at)s and metadata ->> 'origin' is distinct from 'remember'
returning agent_identity as theme, id
