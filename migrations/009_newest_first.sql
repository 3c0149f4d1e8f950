-- Indexes of the rows without a vector, newest first, and of those without words. An older release finds both kinds by the
-- *_unhealed indexes, which stay for it.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (9, '009_newest_first');

CREATE INDEX memory_entries_unembedded ON memory_entries (id DESC) WHERE embedding IS NULL;
CREATE INDEX memory_entries_unworded ON memory_entries (agent_identity, id) WHERE search IS NULL;
CREATE INDEX conversations_unembedded ON conversations (id DESC) WHERE embedding IS NULL;
CREATE INDEX conversations_unworded ON conversations (agent_identity, id) WHERE search IS NULL;

COMMIT;
