-- Indexes for timelines, words, meaning, and for rows that still lack their vector or their words.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (3, '003_indexes');

CREATE INDEX memory_entries_timeline ON memory_entries (agent_identity, created_at DESC, id DESC);
CREATE INDEX memory_entries_words ON memory_entries USING gin (search);
CREATE INDEX memory_entries_meaning ON memory_entries USING hnsw (embedding halfvec_cosine_ops)
  WITH (m = 16, ef_construction = 64);
CREATE INDEX memory_entries_unhealed ON memory_entries (agent_identity, id) WHERE embedding IS NULL OR search IS NULL;

CREATE INDEX conversations_timeline ON conversations (agent_identity, ts DESC, id DESC);
CREATE INDEX conversations_session ON conversations (agent_identity, session_id, ts, id);
CREATE INDEX conversations_words ON conversations USING gin (search);
CREATE INDEX conversations_meaning ON conversations USING hnsw (embedding halfvec_cosine_ops)
  WITH (m = 16, ef_construction = 64);
CREATE INDEX conversations_unhealed ON conversations (agent_identity, id) WHERE embedding IS NULL OR search IS NULL;

CREATE INDEX memory_events_applied_at ON memory_events (applied_at);

COMMIT;
