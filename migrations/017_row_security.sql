-- Row security: Postgres itself keeps the themes apart. A login sees those that its grants hold. `migrate --row-security` turns
-- it on; until then the functions below let everybody see everything.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (17, '017_row_security');

-- What a login may see; only the tables' owner reads and writes it. A pattern is the name of a theme; a beginning with `*` behind
-- it, or `*` for all, each without the themes of persons and rooms; or `**` for all themes with those. `admitted` are themes of
-- persons and rooms that the login has met first.
CREATE TABLE memory_theme_grants (
  login       name NOT NULL,
  pattern     text NOT NULL CHECK (pattern ~ '^([^*]+|[^*]*\*|\*\*)$'),
  admitted    boolean NOT NULL DEFAULT false,
  granted_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (login, pattern)
);
CREATE INDEX memory_theme_grants_pattern ON memory_theme_grants (pattern);
CREATE INDEX memory_theme_grants_wide ON memory_theme_grants (login) WHERE right(pattern, 1) = '*';
-- A theme of a person or room is admitted once.
CREATE UNIQUE INDEX memory_theme_grants_admitted ON memory_theme_grants (pattern) WHERE admitted;


-- The name of a theme as the prefixes of `memory_theme_prefixes` cover it; those of persons and rooms are covered by none but ''.
CREATE FUNCTION memory_theme_key(theme text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN (theme ^@ 'dm-' OR theme ^@ 'group-') AND theme ~ '^(dm|group)-[a-z0-9_]{1,24}-[0-9a-f]{16}$' THEN '@'
  ELSE '=' || theme
END;

-- The beginnings of the keys of the themes that this transaction may see; '' for all themes, to whom row security does not apply.
-- hermes_pgvector.themes narrows a transaction to themes, one a line; `*` is one of them for all that are nobody's own.
CREATE FUNCTION memory_theme_prefixes() RETURNS text[] LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER AS $$
DECLARE
  narrowed CONSTANT text[] := string_to_array(nullif(current_setting('hermes_pgvector.themes', true), ''), E'\n');
  granted text[];
BEGIN
  IF NOT (SELECT relrowsecurity FROM pg_class WHERE oid = 'conversations'::regclass) THEN
    RETURN ARRAY[''];
  END IF;
  IF narrowed IS NOT NULL AND '*' <> ALL (narrowed) THEN
    RETURN ARRAY[]::text[];
  END IF;
  granted := CASE
    WHEN pg_has_role(session_user, current_user, 'USAGE')
      OR (SELECT rolbypassrls FROM pg_roles WHERE rolname = session_user) THEN ARRAY['']
    ELSE array(
      SELECT CASE pattern WHEN '**' THEN '' ELSE '=' || left(pattern, -1) END
      FROM memory_theme_grants WHERE login = session_user AND right(pattern, 1) = '*')
    END;
  RETURN CASE WHEN narrowed IS NULL THEN granted ELSE array_replace(granted, '', '=') END;
END
$$;

-- The names of further themes that this transaction may see.
CREATE FUNCTION memory_themes() RETURNS SETOF text LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 10 AS $$
DECLARE
  narrowed CONSTANT text[] := string_to_array(nullif(current_setting('hermes_pgvector.themes', true), ''), E'\n');
  item text;
BEGIN
  IF narrowed IS NULL THEN
    RETURN QUERY SELECT pattern FROM memory_theme_grants WHERE login = session_user AND right(pattern, 1) <> '*';
    RETURN;
  END IF;
  -- One by one, because a login may have a grant for each of thousands of persons.
  FOREACH item IN ARRAY narrowed LOOP
    IF pg_has_role(session_user, current_user, 'USAGE')
      OR EXISTS (SELECT FROM memory_theme_grants WHERE login = session_user AND pattern = item)
      OR EXISTS (
        SELECT FROM memory_theme_grants
        WHERE login = session_user AND right(pattern, 1) = '*'
          AND (pattern = '**' OR memory_theme_key(item) ^@ ('=' || left(pattern, -1))))
    THEN
      RETURN NEXT item;
    END IF;
  END LOOP;
END
$$;

-- Whether this transaction may see a theme.
CREATE FUNCTION memory_theme_granted(theme text) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER AS $$
BEGIN
  RETURN memory_theme_key(theme) ^@ ANY (memory_theme_prefixes()) OR theme IN (SELECT memory_themes());
END
$$;

-- Themes of persons and rooms become those of the login that meets them first, when it has a grant such as `dm-*`: a beginning
-- of their names. Returns those that it may see then. One that another login has, or that has rows already, needs a grant.
CREATE FUNCTION admit_memory_themes(themes text[]) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  item text;
BEGIN
  FOREACH item IN ARRAY themes LOOP
    IF memory_theme_granted(item) IS FALSE AND memory_theme_key(item) = '@'
      AND EXISTS (
        SELECT FROM memory_theme_grants
        WHERE login = session_user AND pattern ~ '^(dm|group)-.*\*$' AND item ^@ left(pattern, -1))
      AND NOT EXISTS (SELECT FROM memory_theme_grants WHERE pattern = item)
      AND NOT memory_theme_has_rows(item)
    THEN
      INSERT INTO memory_theme_grants (login, pattern, admitted) VALUES (session_user, item, true) ON CONFLICT DO NOTHING;
    END IF;
    IF memory_theme_granted(item) THEN
      RETURN NEXT item;
    END IF;
  END LOOP;
END
$$;

-- Whether a table of the memory has a row of a theme.
CREATE FUNCTION memory_theme_has_rows(theme text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
  item record;
  found boolean := false;
BEGIN
  FOR item IN SELECT name, columns FROM memory_themed_tables() LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE $1 IN (%s))', item.name, array_to_string(item.columns, ', '))
      INTO found USING theme;
    EXIT WHEN found;
  END LOOP;
  RETURN found;
END
$$;

-- The tables whose rows belong to themes, each with its columns of themes and with the condition of its policy.
CREATE FUNCTION memory_themed_tables() RETURNS TABLE (name regclass, columns text[], policy text) LANGUAGE sql STABLE AS $$
  SELECT c.oid::regclass, array_agg(quote_ident(a.attname)),
         string_agg(format(
           -- Narrowed to named themes, as most recalls are, no prefix holds: the key of each row would be made in vain.
           'CASE WHEN (SELECT memory_theme_prefixes() = ''{}'') THEN %1$I IN (SELECT memory_themes())'
           ' ELSE memory_theme_key(%1$I) ^@ ANY ((SELECT memory_theme_prefixes())::text[])'
           ' OR %1$I IN (SELECT memory_themes()) END',
           a.attname), ' AND ')
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
  WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'conversations'::regclass) AND c.relkind IN ('r', 'p')
    AND (c.relname ^@ 'memory_' OR c.relname ^@ 'conversation' OR c.relname ^@ 'fact')
    AND (a.attname = 'agent_identity'
      OR (a.attname IN ('person', 'theme') AND c.relname IN ('memory_person_links', 'memory_renames')))
  GROUP BY c.oid
$$;

-- Protect a table, or all: what a login sees and writes are rows of its themes. The owner goes on seeing all of them.
CREATE FUNCTION protect_memory_table(item regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  condition CONSTANT text := (SELECT policy FROM memory_themed_tables() WHERE name = item);
BEGIN
  PERFORM unprotect_memory_table(item);
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', item);
  EXECUTE format('CREATE POLICY memory_themes ON %s USING (%s)', item, condition);
  -- A constant, so that the indexes are used in functions with the rights of the owner.
  EXECUTE format('CREATE POLICY memory_owner ON %s TO %s USING (true)', item,
    (SELECT relowner::regrole FROM pg_class WHERE oid = item));
END
$$;

-- What other policies permit goes, too.
CREATE FUNCTION unprotect_memory_table(item regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  policy name;
BEGIN
  FOR policy IN SELECT polname FROM pg_policy WHERE polrelid = item AND polpermissive LOOP
    EXECUTE format('DROP POLICY %I ON %s', policy, item);
  END LOOP;
  EXECUTE format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY', item);
END
$$;


-- A key that is none would stop all agents that read it.
CREATE OR REPLACE FUNCTION claim_memory_setting(wanted text, offer text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF wanted NOT IN ('person_key', 'erasure_key', 'embedding_model') THEN
    RAISE insufficient_privilege USING MESSAGE = format('the setting %L is not made by agents', left(wanted, 40));
  END IF;
  IF wanted IN ('person_key', 'erasure_key') AND offer !~ '^[0-9a-f]{64}$' THEN
    RAISE invalid_parameter_value USING MESSAGE = format('the setting %L has 64 hexadecimal digits', wanted);
  END IF;
  INSERT INTO hermes_pgvector_settings (name, value) VALUES (wanted, offer) ON CONFLICT DO NOTHING;
  RETURN (SELECT value FROM hermes_pgvector_settings WHERE name = wanted);
END
$$;

-- The functions that have the rights of the owner see what the login may see.
CREATE OR REPLACE FUNCTION complete_memory_history(
  theme text, entry bigint, how text, session_id text, gone_at timestamptz, replaced_by text
) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
  UPDATE memory_history SET how = $3, session_id = $4, gone_at = $5, replaced_by = $6
  WHERE agent_identity = $1 AND entry_id = $2 AND gone_at = now() AND memory_theme_granted($1)
$$;

CREATE OR REPLACE FUNCTION settle_memory_history(source text, destination text, entries bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
  WITH moved AS (
    DELETE FROM memory_history h
    WHERE memory_theme_granted($1) AND memory_theme_granted($2) AND h.agent_identity = $1 AND h.entry_id = ANY ($3)
      AND h.gone_at = now()
      AND EXISTS (SELECT FROM memory_entries e WHERE e.agent_identity = $2 AND e.id = h.entry_id AND e.content = h.content)
  )
  UPDATE memory_history h SET how = 'moved'
  WHERE memory_theme_granted($1) AND memory_theme_granted($2) AND h.agent_identity = $1 AND h.entry_id = ANY ($3)
    AND h.gone_at = now()
    AND NOT EXISTS (SELECT FROM memory_entries e WHERE e.agent_identity = $2 AND e.id = h.entry_id AND e.content = h.content)
$$;

CREATE OR REPLACE FUNCTION move_memory_history(source text, destination text, account text, mark jsonb, most bigint)
RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER AS $$
  WITH gone AS (
    DELETE FROM memory_history
    WHERE memory_theme_granted($1) AND memory_theme_granted($2) AND agent_identity = $1 AND id IN (
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

CREATE OR REPLACE FUNCTION prune_memory_history(days bigint) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER AS $$
  DELETE FROM memory_history
  WHERE (agent_identity, id) IN (
    SELECT agent_identity, id FROM memory_history
    WHERE gone_at < now() - make_interval(days => greatest($1, 1)::int)
      AND (memory_theme_key(agent_identity) ^@ ANY ((SELECT memory_theme_prefixes())::text[])
        OR agent_identity IN (SELECT memory_themes()))
      AND NOT EXISTS (
        SELECT FROM hermes_pgvector_settings
        WHERE name = 'history_days_min'
          AND coalesce(noted_at, gone_at) >= now() - make_interval(days => value::int))
    LIMIT 10000)
  RETURNING id
$$;

CREATE OR REPLACE FUNCTION forget_memory_trial(theme text, trial text) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER AS $$
  DELETE FROM memory_history
  WHERE agent_identity = $1 AND content_key(content) = content_key($2) AND content = $2 AND memory_theme_granted($1)
    AND $2 ~ '^The set-up tried out the memory of this agent and called it [0-9a-f]{32}\.$'
  RETURNING id
$$;

-- A query of words for rows of the granted ones of some themes, or of all themes; null when none is granted. Without this it would
-- be compared with rows of other themes, whose number the counters of the transaction tell. Of a login that sees all but persons
-- and rooms, and asks in all themes, it is compared with rows of persons, too.
CREATE FUNCTION memory_query_in_themes(words tsquery, themes text[]) RETURNS tsquery LANGUAGE plpgsql STABLE AS $$
DECLARE
  prefixes CONSTANT text[] := memory_theme_prefixes();
  held text;
BEGIN
  IF '' = ANY (prefixes) OR (themes IS NULL AND '=' = ANY (prefixes)) THEN
    RETURN words;
  END IF;
  SELECT string_agg('''@' || replace(replace(name, '\', '\\'), '''', '''''') || '''' || more, ' | ') INTO held
  FROM (
    SELECT theme, '' FROM unnest(themes) AS theme WHERE memory_theme_granted(theme)
    UNION ALL
    SELECT theme, '' FROM memory_themes() AS theme WHERE themes IS NULL
    UNION ALL
    SELECT substr(prefix, 2), ':*' FROM unnest(prefixes) AS prefix WHERE themes IS NULL
  ) AS granted (name, more);
  RETURN held::tsquery && words;
END
$$;

-- The rows of some themes, or of all that are `own` or not `reserved`, that match a query of words: any `most` of them, or the
-- `newest`. Below row security a query could not use the index of words, because its operator is not leakproof.
CREATE FUNCTION memory_rows_with_words(
  kind text, query tsquery, themes text[], own text, reserved text, most bigint, newest boolean
) RETURNS TABLE (agent_identity text, id bigint) LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 500 AS $$
DECLARE
  item CONSTANT text := CASE kind WHEN 'turns' THEN 'conversations' WHEN 'entries' THEN 'memory_entries' ELSE 'facts' END;
  at CONSTANT text := CASE kind WHEN 'turns' THEN 'ts' WHEN 'entries' THEN 'created_at' ELSE 'written_at' END;
  matching CONSTANT text := format(
    'SELECT t.agent_identity, t.id, t.%s AS at FROM %s t
     WHERE (t.search || array_to_tsvector(array[''@'' || t.agent_identity])) @@ $1%s
       -- In this order: what the caller gives must not meet other themes. It keeps from the index of themes, too, which would
       -- bring all rows of a theme.
       AND CASE
         WHEN memory_theme_key(t.agent_identity) ^@ ANY ((SELECT memory_theme_prefixes())::text[])
           OR t.agent_identity IN (SELECT memory_themes())
         THEN t.agent_identity = ANY ($2) OR ($2 IS NULL AND (t.agent_identity = $3 OR t.agent_identity !~ $4))
         END',
    at, item, CASE kind WHEN 'facts' THEN ' AND t.status IN (''active'', ''cold'')' ELSE '' END);
  -- The planner expects several times the rows that hold a few rare words: it would read all rows by time to find the newest
  -- of them. That is quick only where really many rows match.
  by_time CONSTANT text := format(
    'WITH few AS MATERIALIZED (%1$s LIMIT 50000), counted AS MATERIALIZED (SELECT count(*) < 50000 AS all_found FROM few)
     (SELECT f.agent_identity, f.id FROM few f WHERE (SELECT all_found FROM counted) ORDER BY f.at DESC LIMIT $5)
     UNION ALL
     (SELECT m.agent_identity, m.id FROM (%1$s) m WHERE NOT (SELECT all_found FROM counted) ORDER BY m.at DESC LIMIT $5)',
    matching);
BEGIN
  RETURN QUERY EXECUTE
    CASE WHEN newest THEN by_time ELSE format('SELECT m.agent_identity, m.id FROM (%s) m LIMIT $5', matching) END
  USING memory_query_in_themes(query, themes), themes, own, reserved, most;
END
$$;

-- The entries with exactly these texts, of a theme and of a home in any theme, for the same reason.
CREATE FUNCTION memory_entries_with_texts(contents text[], target text, theme text, home text)
RETURNS TABLE (agent_identity text, id bigint) LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 2 AS $$
BEGIN
  RETURN QUERY
    SELECT e.agent_identity, e.id FROM memory_entries e
    WHERE content_key(e.content) = ANY (array(SELECT content_key(c) FROM unnest($1) AS c)) AND e.target = $2
      AND (e.agent_identity = $3 OR (e.home = $4 AND e.home <> ''))
      AND (memory_theme_key(e.agent_identity) ^@ ANY ((SELECT memory_theme_prefixes())::text[])
        OR e.agent_identity IN (SELECT memory_themes()));
END
$$;


-- They see the objects beside them, whatever the search_path of a session is. Policies use those that tell a login about itself;
-- the others are for who can write, or read, the conversations.
DO $$
DECLARE
  item text;
  grantee text;
BEGIN
  FOREACH item IN ARRAY ARRAY['complete_memory_history', 'settle_memory_history', 'move_memory_history', 'prune_memory_history',
                              'forget_memory_trial', 'memory_theme_prefixes', 'memory_themes', 'memory_theme_granted',
                              'admit_memory_themes', 'memory_theme_has_rows', 'memory_themed_tables', 'protect_memory_table',
                              'unprotect_memory_table', 'memory_rows_with_words', 'memory_entries_with_texts',
                              'memory_query_in_themes', 'claim_memory_setting'] LOOP
    EXECUTE format('ALTER FUNCTION %I SET search_path = %I, pg_temp', item, current_schema());
  END LOOP;
  FOREACH item IN ARRAY ARRAY['admit_memory_themes', 'memory_theme_has_rows', 'protect_memory_table',
                              'unprotect_memory_table', 'memory_rows_with_words', 'memory_entries_with_texts',
                              'memory_query_in_themes'] LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %I FROM PUBLIC', item);
  END LOOP;
  FOR item, grantee IN
    SELECT DISTINCT f.name, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
    FROM pg_class, aclexplode(relacl) AS acl,
         (VALUES ('INSERT', 'admit_memory_themes'), ('SELECT', 'memory_rows_with_words'),
                 ('SELECT', 'memory_entries_with_texts')) AS f (needs, name)
    WHERE oid = 'conversations'::regclass AND acl.privilege_type = f.needs
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %I TO %s', item, grantee);
  END LOOP;
END
$$;

COMMIT;
