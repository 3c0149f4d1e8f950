-- Texts of some sessions that begin and end as one of the masked texts does. Their secrets are compared by the caller.
select distinct content
from conversations c
where agent_identity = %(theme)s and session_id = any (%(sessions)s::text[]) and exists (
    select 1 from unnest(%(before)s::text[], %(after)s::text[]) as m (before, after)
    where starts_with(c.content, m.before) and right(c.content, length(m.after)) = m.after)
