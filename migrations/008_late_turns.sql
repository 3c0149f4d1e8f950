-- Turns that reach the database late: after a replay has told of them, or after they were taken back.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (8, '008_late_turns');

-- Rows that a replay stored before the turn itself came, which takes their place then.
CREATE INDEX conversations_replayed ON conversations (agent_identity, ts) WHERE metadata ? 'replayed';

-- Of the turns that said this until then in all of `sessions`, so many stand; what comes late of the others is not kept.
CREATE TABLE memory_withdrawals (
  agent_identity  text NOT NULL,
  session_id      text NOT NULL,
  role            text NOT NULL,
  content_key     bytea NOT NULL,
  at              timestamptz NOT NULL,
  standing        int NOT NULL,
  sessions        text[] NOT NULL,
  PRIMARY KEY (agent_identity, session_id, role, content_key)
);

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
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON memory_withdrawals TO %s', grantee);
  END LOOP;
END
$$;

COMMIT;
