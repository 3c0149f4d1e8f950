-- What the schema needs on a Citus cluster beside its tables. It runs after the migrations and changes nothing the second time.

-- The nodes of a distributed transaction have clocks of their own. This is the time that the coordinator has told them.
CREATE OR REPLACE FUNCTION memory_transaction_time() RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT coalesce((pg_catalog.get_current_transaction_id()).transaction_stamp, pg_catalog.now())
$$;

-- The trigger that notes deleted entries runs on the nodes.
ALTER TABLE memory_history ALTER COLUMN gone_at SET DEFAULT memory_transaction_time();

-- Of an entry that is deleted, the history tells what the transaction says in this setting.
CREATE OR REPLACE FUNCTION complete_noted_entry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  told CONSTANT jsonb := nullif(current_setting('hermes_pgvector.change', true), '');
BEGIN
  -- Not for what is inserted otherwise than by the trigger of the entries.
  IF told IS NOT NULL AND pg_trigger_depth() > 1 THEN
    NEW.how := told ->> 'how';
    NEW.session_id := told ->> 'session_id';
    NEW.gone_at := told ->> 'gone_at';
    NEW.replaced_by := told ->> 'replaced_by';
  END IF;
  RETURN NEW;
END
$$;

-- It runs on the nodes, too.
CREATE OR REPLACE TRIGGER memory_history_noted BEFORE INSERT ON memory_history
  FOR EACH ROW EXECUTE FUNCTION complete_noted_entry();

-- In which themes a home may have an entry, by the hash of its text: a change of its files asks for these themes only. Writers
-- note an entry here before they insert it; a row may outlive its entry.
CREATE TABLE IF NOT EXISTS memory_entry_homes (
  home            text NOT NULL,
  target          text NOT NULL,
  content_key     bytea NOT NULL,
  agent_identity  text NOT NULL,
  PRIMARY KEY (home, target, content_key, agent_identity)
);

-- For entries that are gone, and for themes that are renamed, linked or erased.
CREATE INDEX IF NOT EXISTS memory_entry_homes_theme ON memory_entry_homes (agent_identity, content_key);

-- Entries from before the tables were distributed, and those that somebody has inserted by hand.
INSERT INTO memory_entry_homes (home, target, content_key, agent_identity)
SELECT home, target, content_key(content), agent_identity FROM memory_entries WHERE home <> ''
ON CONFLICT DO NOTHING;

-- Citus gets to know these tables of the coordinator: what is written to them and to one node is then stored on both or on neither.
SELECT citus_add_local_table_to_metadata(name) FROM unnest(array['memory_tombstones', 'memory_entry_homes']::regclass[]) AS name
WHERE NOT EXISTS (SELECT 1 FROM pg_dist_partition WHERE logicalrelid = name);

-- Who can add entries can use it.
DO $$
DECLARE
  grantee text;
BEGIN
  FOR grantee IN
    SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
    FROM pg_class, aclexplode(relacl) AS acl
    WHERE oid = 'memory_entries'::regclass AND acl.privilege_type = 'INSERT'
  LOOP
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON memory_entry_homes TO %s', grantee);
  END LOOP;
END
$$;

-- Citus does not plan statements with parameters in functions in SQL. So the functions of the migrations get the same text in
-- PL/pgSQL, which asks for the rows of another theme apart, and in which rows that this transaction has noted are those with the time above. Nor can Citus send an empty SELECT.
DO $$
DECLARE
  item record;
BEGIN
  FOR item IN
    SELECT p.oid::regprocedure AS signature, p.proname AS name, pg_get_function_arguments(p.oid) AS arguments,
           pg_get_function_result(p.oid) AS result, split_part(p.proconfig[1], '=', 2) AS path,
           CASE WHEN p.proretset THEN 'RETURN QUERY ' ELSE '' END
             || replace(replace(replace(p.prosrc, 'gone_at = now()', 'gone_at = memory_transaction_time()'),
                  'EXISTS (SELECT FROM memory_entries e WHERE e.agent_identity = $2 AND e.id = h.entry_id AND e.content = h.content)',
                  '(h.entry_id, h.content) IN (SELECT e.id, e.content FROM memory_entries e'
                  ' WHERE e.agent_identity = $2 AND e.id = ANY ($3))'), 'SELECT FROM', 'SELECT 1 FROM') AS text
    FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
    WHERE p.pronamespace = current_schema()::regnamespace AND l.lanname = 'sql' AND p.prosecdef AND p.proconfig IS NOT NULL
  LOOP
    EXECUTE format(
      'CREATE OR REPLACE FUNCTION %I (%s) RETURNS %s LANGUAGE plpgsql SECURITY DEFINER AS %L', item.name, item.arguments,
      item.result, E'\n#variable_conflict use_column\nBEGIN\n' || rtrim(item.text, E'; \n') || E';\nEND\n');
    EXECUTE format('ALTER FUNCTION %s SET search_path = %s', item.signature, item.path);
  END LOOP;
END
$$;
