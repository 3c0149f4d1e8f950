-- What was erased for good: events that were accepted before, in whichever home, are dropped when they come.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (13, '013_erasures');

-- A row for each theme, session and text that was erased. `key` is a keyed hash (HMAC-SHA-256); its secret is the setting
-- `erasure_key`. Events until `at` are dropped; `dropped` counts them.
CREATE TABLE memory_erasures (
  agent_identity  text NOT NULL,
  key             bytea NOT NULL,
  kind            text NOT NULL CHECK (kind IN ('theme', 'session', 'entries', 'turns', 'facts')),
  at              timestamptz NOT NULL DEFAULT now(),
  dropped         bigint NOT NULL DEFAULT 0,
  dropped_at      timestamptz,
  PRIMARY KEY (agent_identity, key)
);
-- An entry that stands in a file of a home is looked up in all themes.
CREATE INDEX memory_erasures_entries ON memory_erasures (key) WHERE kind = 'entries';
CREATE INDEX memory_erasures_age ON memory_erasures (at);

-- Who can write the conversations can use it.
DO $$
DECLARE
  grantee text;
BEGIN
  FOR grantee IN
    SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
    FROM pg_class, aclexplode(relacl) AS acl
    WHERE oid = 'conversations'::regclass AND acl.privilege_type = 'INSERT'
  LOOP
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON memory_erasures TO %s', grantee);
  END LOOP;
END
$$;

COMMIT;
