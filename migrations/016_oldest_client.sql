-- The oldest clients that the database serves, by the newest migration that they know. An older one stores and recalls
-- nothing until it is upgraded; only those of release 2.0.0, which knew 8, do not read it. A migration that older clients
-- cannot stand begins with LOCK TABLE hermes_pgvector_settings IN ACCESS EXCLUSIVE MODE, and raises the value: no
-- transaction of an older client goes on beside it.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (16, '016_oldest_client');

INSERT INTO hermes_pgvector_settings (name, value) VALUES ('oldest_client', '8') ON CONFLICT DO NOTHING;

COMMIT;
