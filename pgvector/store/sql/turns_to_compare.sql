-- Answers with their questions, in the order of the ids. A question is a microsecond older than its answer. A delegation
-- is not compared.
select a.id, q.id as question, coalesce(q.content, '') as asked, a.content, 
       greatest('0001-01-03', least('9999-12-29', a.ts)) as at
from conversations a
left join lateral (
  select id, content from conversations
  where agent_identity = %(theme)s and session_id = a.session_id and role = 'user'
    and ts = a.ts - interval '1 microsecond'
  order by id limit 1) as q on true
where a.agent_identity = %(theme)s and a.id > %(after)s and a.role = 'assistant' and not a.metadata ? 'delegated_to'
order by a.id
limit %(limit)s
