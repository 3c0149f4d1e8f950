delete from memory_pruned_turns
where agent_identity = %(theme)s
  and content_key = any (array (select content_key(text) from unnest(%(texts)s::text[]) as t (text)))
