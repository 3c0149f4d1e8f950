-- Turns that an operator or a setting has deleted, and themes that have another name now.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (14, '014_mending');

-- How many answers of a session with this text were deleted: a later replay of the session does not store them again.
CREATE TABLE memory_pruned_turns (
  agent_identity  text NOT NULL,
  session_id      text NOT NULL,
  content_key     bytea NOT NULL,
  times           bigint NOT NULL,
  at              timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (agent_identity, session_id, content_key)
);

-- Events of the theme `agent_identity` are stored under `theme`, which has no other name itself.
CREATE TABLE memory_renames (
  agent_identity  text PRIMARY KEY,
  theme           text NOT NULL CHECK (theme <> agent_identity),
  renamed_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX memory_renames_theme ON memory_renames (theme);

-- Who can write the conversations can use them.
DO $$
DECLARE
  grantee text;
BEGIN
  FOR grantee IN
    SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
    FROM pg_class, aclexplode(relacl) AS acl
    WHERE oid = 'conversations'::regclass AND acl.privilege_type = 'INSERT'
  LOOP
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON memory_pruned_turns, memory_renames TO %s', grantee);
  END LOOP;
END
$$;

COMMIT;
