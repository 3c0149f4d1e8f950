-- Later rows of these themes have higher ids.
select coalesce(max(id), 0) as id from $table where agent_identity = any (%(themes)s::text[])
