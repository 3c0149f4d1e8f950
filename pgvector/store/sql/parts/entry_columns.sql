-- Times that Python does not have, which psql can store, become the nearest that it has.
agent_identity as theme, id, home, target, content, metadata,
greatest('0001-01-03', least('9999-12-29', created_at)) as created_at,
greatest('0001-01-03', least('9999-12-29', updated_at)) as updated_at,
coalesce(tags, '{}') as tags,
case when isfinite(expires_at) then greatest('0001-01-03', least('9999-12-29', expires_at)) end as expires_at
