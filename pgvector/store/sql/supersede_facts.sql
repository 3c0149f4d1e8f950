-- What a new fact takes the place of: the older one of its kind, or of each kind when the target is obsolete.
update facts
set status = 'superseded', changed_at = %(at)s
where agent_identity = %(theme)s and target = %(target)s and scope = %(scope)s and %(kind)s in (kind, 'obs')
  and status in ('active', 'cold') and (written_at, event_id) < (%(at)s::timestamptz, %(id)s::uuid)
returning id
