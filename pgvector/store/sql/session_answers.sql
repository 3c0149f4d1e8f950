-- What a session and those it went on from already hold, as a multiset of assistant texts.
select content, count(*) as times
from conversations
where agent_identity = %(theme)s and session_id = any (%(sessions)s::text[]) and role = 'assistant'
group by content
