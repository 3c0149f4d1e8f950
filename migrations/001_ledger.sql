-- The extension, the ledger of applied files, and the small tables that every process reads.

BEGIN;

CREATE EXTENSION IF NOT EXISTS vector;

DO $$
DECLARE
  found text := (SELECT extversion FROM pg_extension WHERE extname = 'vector');
BEGIN
  IF string_to_array(substring(found from '^\d+\.\d+'), '.')::int[] < ARRAY[0, 8] THEN
    RAISE EXCEPTION 'pgvector % is installed, 0.8 or newer is needed', found
      USING HINT = 'Install a newer pgvector, then run ALTER EXTENSION vector UPDATE in this database.';
  END IF;
END
$$;

CREATE TABLE hermes_pgvector_migrations (
  version     int PRIMARY KEY,
  name        text NOT NULL,
  checksum    text,
  applied_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN hermes_pgvector_migrations.checksum IS
  'SHA-256 of the file, filled in by `hermes-pgvector migrate`; null after psql -f';

CREATE TABLE hermes_pgvector_settings (
  name   text PRIMARY KEY,
  value  text NOT NULL
);

CREATE TABLE hermes_pgvector_leases (
  name        text PRIMARY KEY,
  holder      text NOT NULL,
  expires_at  timestamptz NOT NULL
);

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (1, '001_ledger');

COMMIT;
