-- Removed entries, by the hash of their texts.
delete from memory_tombstones
where (agent_identity, home, target, content_key) in (
  select agent_identity, home, target, content_key from memory_tombstones t
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and %(ids)s::bigint[] is null
  and %(text)s = '' and %(session)s = ''
  limit %(limit)s)
