-- The earlier texts of these entries. Run it before the entries are deleted and after it: a trigger notes each deletion.
delete from memory_history
where agent_identity = %(theme)s
  and (entry_id = any (%(ids)s::bigint[]) or entry_id in (
    select unnest(replaces) from memory_entries where agent_identity = %(theme)s and id = any (%(ids)s::bigint[])))
