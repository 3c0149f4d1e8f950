-- Open scopes of sessions that were not heard of for long.
select label from fact_scopes
where agent_identity = %(theme)s and closed_at is null and heard_at < %(at)s::timestamptz - make_interval(days => %(days)s)
