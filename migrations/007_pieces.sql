-- Vectors of the parts of long texts, which one vector cannot stand for. A row that has its own vector has these, too.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (7, '007_pieces');

CREATE TABLE memory_entry_pieces (
  agent_identity  text NOT NULL,
  row_id          bigint NOT NULL,
  piece           smallint NOT NULL,
  embedding       halfvec NOT NULL,
  PRIMARY KEY (agent_identity, row_id, piece),
  FOREIGN KEY (agent_identity, row_id) REFERENCES memory_entries ON DELETE CASCADE
);

CREATE TABLE conversation_pieces (
  agent_identity  text NOT NULL,
  row_id          bigint NOT NULL,
  piece           smallint NOT NULL,
  embedding       halfvec NOT NULL,
  PRIMARY KEY (agent_identity, row_id, piece),
  FOREIGN KEY (agent_identity, row_id) REFERENCES conversations ON DELETE CASCADE
);

-- As long, and kept in the same way, as the vectors of the rows.
DO $$
DECLARE
  whole record;
BEGIN
  SELECT format_type(atttypid, atttypmod) AS type, attstorage AS storage INTO whole
    FROM pg_attribute WHERE attrelid = 'conversations'::regclass AND attname = 'embedding';
  EXECUTE format('ALTER TABLE memory_entry_pieces ALTER COLUMN embedding TYPE %1$s, ALTER COLUMN embedding SET STORAGE %2$s',
    whole.type, CASE whole.storage WHEN 'p' THEN 'PLAIN' ELSE 'EXTERNAL' END);
  EXECUTE format('ALTER TABLE conversation_pieces ALTER COLUMN embedding TYPE %1$s, ALTER COLUMN embedding SET STORAGE %2$s',
    whole.type, CASE whole.storage WHEN 'p' THEN 'PLAIN' ELSE 'EXTERNAL' END);
END
$$;

CREATE INDEX memory_entry_pieces_meaning ON memory_entry_pieces USING hnsw (embedding halfvec_cosine_ops)
  WITH (m = 16, ef_construction = 64);
CREATE INDEX conversation_pieces_meaning ON conversation_pieces USING hnsw (embedding halfvec_cosine_ops)
  WITH (m = 16, ef_construction = 64);

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
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON memory_entry_pieces, conversation_pieces TO %s', grantee);
  END LOOP;
END
$$;

-- Long texts that have a vector already get it again, and their pieces with it, from the running plugin.
UPDATE memory_entries SET embedding = NULL WHERE embedding IS NOT NULL AND length(content) > 2000;
UPDATE conversations SET embedding = NULL WHERE embedding IS NOT NULL AND length(content) > 2000;

COMMIT;
