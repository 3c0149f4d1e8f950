-- What a session already holds, as a multiset of assistant texts.
select content, count(*) as times
from conversations
where agent_identity = %(theme)s and session_id = %(session)s and role = 'assistant'
group by content
