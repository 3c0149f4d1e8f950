-- A row of a home that was there at this time, and that a later change of the home has taken.
select agent_identity as theme, entry_id as id, session_id, gone_at as at, how, replaced_by, tags,
       greatest('0001-01-03', least('9999-12-29', created_at)) as created_at
from memory_history
where home = %(home)s and home <> '' and target = %(target)s and content_key(content) = content_key(%(content)s)
  and updated_at <= %(at)s and gone_at > %(at)s and how in ('removed', 'replaced')
order by gone_at desc
limit 1
