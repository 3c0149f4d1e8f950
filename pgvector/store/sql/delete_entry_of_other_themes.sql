-- A file is read for the theme of its home; when a hook then tells whose entry it is, that theme has it.
delete from memory_entries
where home = %(home)s and home <> '' and target = %(target)s and content_key(content) = content_key(%(content)s)
  and agent_identity <> %(theme)s and metadata ->> 'origin' = 'file'
returning agent_identity, id
