-- The trigger has noted the rows that this transaction has deleted. An entry that is moved has no past by that; one that
-- the destination had already is kept in the history.
with moved as (
  delete from memory_history h
  where h.agent_identity = %(source)s and h.entry_id = any (%(ids)s::bigint[]) and h.gone_at = now()
    and exists (select from memory_entries e where e.agent_identity = %(destination)s and e.id = h.entry_id)
)
update memory_history h set how = 'moved'
where h.agent_identity = %(source)s and h.entry_id = any (%(ids)s::bigint[]) and h.gone_at = now()
  and not exists (select from memory_entries e where e.agent_identity = %(destination)s and e.id = h.entry_id)
