-- A fact that another transaction has locked is left out: nobody waits for a note of its use.
update facts set used_at = now(), uses = uses + 1
where agent_identity = %(theme)s and id in (
  select id from facts
  where agent_identity = %(theme)s and id = any (%(ids)s::bigint[])
  for update skip locked)
