-- The rows of a home with this text that changes between two times have taken, the first 1,000. Changes after the last
-- removal of the home are those of a tool or an operator.
select agent_identity as theme, entry_id as id, session_id, gone_at as at, how, replaced_by, tags,
       metadata,
       greatest('0001-01-03', least('9999-12-29', created_at)) as created_at,
       greatest('0001-01-03', least('9999-12-29', updated_at)) as updated_at
from memory_history
where home = %(home)s and home <> '' and target = %(target)s and content_key(content) = content_key(%(content)s)
  and gone_at > %(at)s and gone_at <= %(until)s and how in ('removed', 'replaced')
order by gone_at
limit 1000
