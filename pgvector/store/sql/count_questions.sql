-- How often a session and the sessions that it continues have each of these questions.
select content as question, '' as answer, count(*) as times
from conversations
where agent_identity = %(theme)s and session_id = any (%(sessions)s::text[]) and role = 'user'
  and content = any (%(questions)s::text[])
group by content
