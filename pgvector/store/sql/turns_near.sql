-- The turns of a session around a time, in their order.
select * from (
  (select id, role, content, greatest('0001-01-03', least('9999-12-29', ts)) as at, session_id from conversations
   where agent_identity = %(theme)s and session_id = %(session)s and ts < %(at)s
   order by ts desc, id desc limit %(turns)s)
  union all
  (select id, role, content, greatest('0001-01-03', least('9999-12-29', ts)), session_id from conversations
   where agent_identity = %(theme)s and session_id = %(session)s and ts >= %(at)s
   order by ts, id limit %(turns)s)
) as near
order by at, id
