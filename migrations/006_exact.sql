-- For comparing all vectors of a theme: an index that holds them, without the texts beside them in the table.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (6, '006_exact');

-- A tuple of a btree has 2704 bytes at most, and theme and session need some of them; wider vectors stay without.
DO $$
BEGIN
  IF (SELECT atttypmod FROM pg_attribute WHERE attrelid = 'conversations'::regclass AND attname = 'embedding') <= 768 THEN
    CREATE INDEX memory_entries_exact ON memory_entries (agent_identity) INCLUDE (id, target, embedding)
      WHERE embedding IS NOT NULL;
    CREATE INDEX conversations_exact ON conversations (agent_identity) INCLUDE (id, session_id, ts, role, embedding)
      WHERE embedding IS NOT NULL;
  END IF;
END
$$;

COMMIT;
