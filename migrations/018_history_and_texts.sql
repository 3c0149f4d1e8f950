-- What a login with SQL of its own could still do: delete an entry without a trace in the history, and find out whether somebody
-- has an entry with a given text.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (18, '018_history_and_texts');

-- The last day of the history is that of the server's clock. An agent tells when an entry went, so a row that it had just added could
-- be old enough to be pruned.
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

-- The texts are looked up in the theme first and then in those of the home. Both at once would be looked for by the text alone, and
-- the counters of an index would tell of other themes.
CREATE OR REPLACE FUNCTION memory_entries_with_texts(contents text[], target text, theme text, home text)
RETURNS TABLE (agent_identity text, id bigint) LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 2 AS $$
DECLARE
  keys CONSTANT bytea[] := array(SELECT content_key(c) FROM unnest(contents) AS c);
BEGIN
  IF memory_theme_granted(theme) THEN
    RETURN QUERY
      SELECT e.agent_identity, e.id FROM memory_entries e
      WHERE e.agent_identity = $3 AND e.target = $2 AND content_key(e.content) = ANY (keys);
  END IF;
  IF home <> '' THEN
    RETURN QUERY
      SELECT e.agent_identity, e.id FROM memory_entries e
      WHERE e.home = $4 AND e.target = $2 AND content_key(e.content) = ANY (keys) AND e.agent_identity IS DISTINCT FROM $3
        AND (memory_theme_key(e.agent_identity) ^@ ANY ((SELECT memory_theme_prefixes())::text[])
          OR e.agent_identity IN (SELECT memory_themes()));
  END IF;
END
$$;

-- With the search_path of the session, functions of the role could stand in for those of Postgres in the trigger of the history.
DO $$
DECLARE
  item text;
BEGIN
  FOREACH item IN ARRAY ARRAY['keep_memory_history', 'prune_memory_history', 'memory_entries_with_texts'] LOOP
    EXECUTE format('ALTER FUNCTION %I SET search_path = %I, pg_temp', item, current_schema());
  END LOOP;
END
$$;

COMMIT;
