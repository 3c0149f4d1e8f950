-- The themes that have a fact with this id.
select agent_identity as theme from facts
where id = %(id)s::bigint and (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
