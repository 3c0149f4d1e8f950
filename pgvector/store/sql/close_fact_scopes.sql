-- Not a scope that was written to later: then what closes it comes late.
with closed as (
  update fact_scopes set closed_at = %(at)s
  where agent_identity = %(theme)s and label = any (%(labels)s::text[]) and closed_at is null and written_at <= %(at)s
  returning label
)
update facts set status = 'cold', changed_at = %(at)s
where agent_identity = %(theme)s and status = 'active' and scope in (select label from closed)
