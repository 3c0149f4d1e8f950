-- Words: an index in which the theme of a row is a word of its own, rows by time alone, and the common words.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (5, '005_words');

-- Every candidate of a question by words is read with its words, hits alone with their text: so the text goes to TOAST.
ALTER TABLE memory_entries ALTER COLUMN search SET STORAGE MAIN;
ALTER TABLE conversations ALTER COLUMN search SET STORAGE MAIN;

-- A word may be scarce in a theme and common elsewhere: the index must not bring the rows of all themes.
DROP INDEX memory_entries_words;
DROP INDEX conversations_words;
CREATE INDEX memory_entries_words ON memory_entries
  USING gin ((search || array_to_tsvector(ARRAY['@' || agent_identity])));
CREATE INDEX conversations_words ON conversations
  USING gin ((search || array_to_tsvector(ARRAY['@' || agent_identity])));

CREATE INDEX memory_entries_latest ON memory_entries (created_at DESC);
CREATE INDEX conversations_latest ON conversations (ts DESC);

-- How many rows of a large theme hold each of its common words, told from a sample. The empty word stands for all rows,
-- the empty theme for all themes that are not reserved for one person or room.
CREATE TABLE memory_words (
  agent_identity  text NOT NULL,
  kind            text NOT NULL CHECK (kind IN ('entries', 'turns')),
  word            text NOT NULL,
  rows            bigint NOT NULL,
  PRIMARY KEY (agent_identity, kind, word)
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
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON memory_words TO %s', grantee);
  END LOOP;
END
$$;

COMMIT;
