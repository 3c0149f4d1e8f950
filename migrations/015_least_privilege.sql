-- What a role that may only add to the history and read the settings needs beyond that: functions with the rights of the
-- tables' owner, each of which does one thing. `migrate --runtime-role` grants such a role its rights.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (15, '015_least_privilege');

-- When a row got into the history, by the clock of the server; null for rows that were there before.
ALTER TABLE memory_history ADD COLUMN noted_at timestamptz;
ALTER TABLE memory_history ALTER COLUMN noted_at SET DEFAULT now();

-- A setting that all agents share is made by the first of them that needs it. Nobody changes it afterwards.
CREATE FUNCTION claim_memory_setting(wanted text, offer text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF wanted NOT IN ('person_key', 'erasure_key', 'embedding_model') THEN
    RAISE insufficient_privilege USING MESSAGE = format('the setting %L is not made by agents', left(wanted, 40));
  END IF;
  -- Every agent reads it with each event that it stores, and could store none with another value.
  IF wanted = 'erasure_key' AND offer !~ '^[0-9a-f]{64}$' THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the secret of erasures has 64 hexadecimal digits';
  END IF;
  INSERT INTO hermes_pgvector_settings (name, value) VALUES (wanted, offer) ON CONFLICT DO NOTHING;
  RETURN (SELECT value FROM hermes_pgvector_settings WHERE name = wanted);
END
$$;

-- The secret of another database beside the own one, which is the first; the first of all in a database without one. The
-- value has a bound, one secret above what agents accept.
CREATE FUNCTION add_memory_erasure_key(secret text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF secret !~ '^[0-9a-f]{64}$' THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the secret of erasures has 64 hexadecimal digits';
  END IF;
  INSERT INTO hermes_pgvector_settings AS s (name, value) VALUES ('erasure_key', secret)
  ON CONFLICT (name) DO UPDATE SET value = s.value || ',' || excluded.value
  WHERE position(excluded.value IN s.value) = 0 AND length(s.value) < 65 * 16;
END
$$;

-- The trigger has noted the rows that this transaction has deleted; it cannot know how, when and by which session.
CREATE FUNCTION complete_memory_history(
  theme text, entry bigint, how text, session_id text, gone_at timestamptz, replaced_by text
) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
  UPDATE memory_history SET how = $3, session_id = $4, gone_at = $5, replaced_by = $6
  WHERE agent_identity = $1 AND entry_id = $2 AND gone_at = now()
$$;

-- The rows that this transaction has moved to another theme have no past by that. One that the destination had already
-- is kept in the history.
CREATE FUNCTION settle_memory_history(source text, destination text, entries bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
  WITH moved AS (
    DELETE FROM memory_history h
    WHERE h.agent_identity = $1 AND h.entry_id = ANY ($3) AND h.gone_at = now()
      AND EXISTS (SELECT FROM memory_entries e WHERE e.agent_identity = $2 AND e.id = h.entry_id AND e.content = h.content)
  )
  UPDATE memory_history h SET how = 'moved'
  WHERE h.agent_identity = $1 AND h.entry_id = ANY ($3) AND h.gone_at = now()
    AND NOT EXISTS (SELECT FROM memory_entries e WHERE e.agent_identity = $2 AND e.id = h.entry_id AND e.content = h.content)
$$;

-- The history of a theme, or of an account of a person, follows it to another theme. Nothing of it is lost.
CREATE FUNCTION move_memory_history(source text, destination text, account text, mark jsonb, most bigint)
RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER AS $$
  WITH gone AS (
    DELETE FROM memory_history
    WHERE agent_identity = $1 AND id IN (
      SELECT id FROM memory_history
      WHERE agent_identity = $1 AND ($3 = '' OR metadata ->> 'linked_account' = $3)
      LIMIT $5)
    RETURNING *
  )
  INSERT INTO memory_history
    (agent_identity, id, entry_id, home, target, content, created_at, updated_at, metadata, gone_at, how, session_id,
     replaced_by, expires_at, tags, noted_at)
  SELECT $2, id, entry_id, home, target, content, created_at, updated_at,
         (metadata - 'linked_account') || jsonb_strip_nulls(jsonb_build_object('linked_account', $4 -> 'linked_account')),
         gone_at, how, session_id, replaced_by, expires_at, tags, noted_at
  FROM gone
  RETURNING id
$$;

-- The setting `history_days_min`, which the tables' owner may insert, is how long a row stays whatever agents ask for, and
-- whatever time they gave to it.
CREATE FUNCTION prune_memory_history(days bigint) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER AS $$
  DELETE FROM memory_history
  WHERE (agent_identity, id) IN (
    SELECT agent_identity, id FROM memory_history
    WHERE gone_at < now() - make_interval(days => greatest($1, 1)::int)
      AND NOT EXISTS (
        SELECT FROM hermes_pgvector_settings
        WHERE name = 'history_days_min'
          AND coalesce(noted_at, gone_at) >= now() - make_interval(days => value::int))
    LIMIT 10000)
  RETURNING id
$$;

-- The entry that the set-up stores and removes to try out the memory. No other text is forgotten by this.
CREATE FUNCTION forget_memory_trial(theme text, trial text) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER AS $$
  DELETE FROM memory_history
  WHERE agent_identity = $1 AND content_key(content) = content_key($2) AND content = $2
    AND $2 ~ '^The set-up tried out the memory of this agent and called it [0-9a-f]{32}\.$'
  RETURNING id
$$;

-- They see the tables beside them, whatever the search_path of a session is. Who can write the conversations can use them.
DO $$
DECLARE
  name text;
  grantee text;
BEGIN
  FOREACH name IN ARRAY ARRAY['claim_memory_setting', 'add_memory_erasure_key', 'complete_memory_history',
                              'settle_memory_history', 'move_memory_history', 'prune_memory_history',
                              'forget_memory_trial'] LOOP
    EXECUTE format('ALTER FUNCTION %I SET search_path = %I, pg_temp', name, current_schema());
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %I FROM PUBLIC', name);
    FOR grantee IN
      SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
      FROM pg_class, aclexplode(relacl) AS acl
      WHERE oid = 'conversations'::regclass AND acl.privilege_type = 'INSERT'
    LOOP
      EXECUTE format('GRANT EXECUTE ON FUNCTION %I TO %s', name, grantee);
    END LOOP;
  END LOOP;
END
$$;

COMMIT;
