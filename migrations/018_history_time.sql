-- The last day of the history is that of the server's clock. An agent tells when an entry went, so a row that it had just added could
-- be old enough to be pruned.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (18, '018_history_time');

CREATE OR REPLACE FUNCTION prune_memory_history(days bigint) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER AS $$
  DELETE FROM memory_history
  WHERE (agent_identity, id) IN (
    SELECT agent_identity, id FROM memory_history
    WHERE gone_at < now() - make_interval(days => greatest($1, 1)::int)
      AND coalesce(noted_at, gone_at) < now() - interval '1 day'
      AND (memory_theme_key(agent_identity) ^@ ANY ((SELECT memory_theme_prefixes())::text[])
        OR agent_identity IN (SELECT memory_themes()))
      AND NOT EXISTS (
        SELECT FROM hermes_pgvector_settings
        WHERE name = 'history_days_min'
          AND coalesce(noted_at, gone_at) >= now() - make_interval(days => value::int))
    LIMIT 10000)
  RETURNING id
$$;

DO $$
BEGIN
  EXECUTE format('ALTER FUNCTION prune_memory_history SET search_path = %I, pg_temp', current_schema());
END
$$;

COMMIT;
