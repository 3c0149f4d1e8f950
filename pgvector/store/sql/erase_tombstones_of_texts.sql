delete from memory_tombstones
where agent_identity = %(theme)s
  and content_key = any (array (select content_key(text) from unnest(%(texts)s::text[]) as t (text)))
