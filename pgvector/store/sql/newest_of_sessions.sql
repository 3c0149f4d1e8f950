-- Of all themes: whose theme a session had is known to the hooks only.
select session_id, content_key(content) as key, ts as at
from conversations
where ts between %(since)s and coalesce(%(until)s::timestamptz, 'infinity') and session_id = any(%(sessions)s)
order by ts desc
limit %(limit)s
