-- How often a session and the sessions that it continues have each of these answers to each question; the question is
-- empty when an answer has none. A question is a microsecond older than its answer.
select coalesce(q.content, '') as question, a.content as answer, count(*) as times
from conversations as a
left join lateral (
  select content from conversations
  where agent_identity = %(theme)s and session_id = a.session_id and role = 'user'
    and ts = a.ts - interval '1 microsecond'
  order by id limit 1) as q on true
where a.agent_identity = %(theme)s and a.session_id = any (%(sessions)s::text[]) and a.role = 'assistant'
  and a.content = any (%(answers)s::text[])
group by 1, 2
