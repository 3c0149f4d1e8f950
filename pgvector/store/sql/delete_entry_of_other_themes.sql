-- An entry that was read from a file is stored in the theme of its home. When a hook then reports whose entry it is, it
-- is moved to that theme. One that the file has had again since then stays.
delete from memory_entries
where home = %(home)s and home <> '' and target = %(target)s and content_key(content) = content_key(%(content)s)
  and (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and agent_identity <> %(theme)s and metadata ->> 'origin' = 'file' and updated_at <= %(at)s
returning agent_identity as theme, id
