-- The sessions of a theme, the one with the newest turn first. Reads one index only.
select session_id, count(*) as turns, greatest('0001-01-03', least('9999-12-29', min(ts))) as first,
       greatest('0001-01-03', least('9999-12-29', max(ts))) as latest
from conversations
where agent_identity = %(theme)s
group by session_id
order by max(ts) desc, session_id
limit %(limit)s offset %(offset)s
