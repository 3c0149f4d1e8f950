select $entry_columns
from memory_entries
where (agent_identity, id) in (
    select w.agent_identity, w.id from memory_entries_with_texts(%(contents)s::text[], %(target)s, %(theme)s, %(home)s) w)
  and (expires_at is null or expires_at > now())
