-- Entries that expire, that have tags, and that replace older entries.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (10, '010_corrections');

-- Null where there is none: most entries have none of them, and such a row stays as short as it was. `replaces` has the ids
-- under which an entry was known before its corrections, the last one first.
ALTER TABLE memory_entries ADD COLUMN expires_at timestamptz, ADD COLUMN tags text[], ADD COLUMN replaces bigint[];
ALTER TABLE memory_history ADD COLUMN expires_at timestamptz, ADD COLUMN tags text[];
ALTER TABLE memory_history DROP CONSTRAINT memory_history_how_check;
ALTER TABLE memory_history ADD CONSTRAINT memory_history_how_check
  CHECK (how IN ('replaced', 'removed', 'edited', 'moved', 'expired'));

CREATE INDEX memory_entries_expiring ON memory_entries (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX memory_entries_replaces ON memory_entries USING gin (replaces) WHERE replaces IS NOT NULL;
-- As in the index of words, the theme of a row is one of its tags: a tag may be scarce in a theme and common elsewhere.
CREATE INDEX memory_entries_tags ON memory_entries USING gin ((tags || ARRAY['@' || agent_identity]))
  WHERE tags IS NOT NULL;

-- Whether an entry has expired is asked for each vector that is compared, so the index of vectors holds it, too.
DO $$
BEGIN
  IF to_regclass('memory_entries_exact') IS NOT NULL THEN
    DROP INDEX memory_entries_exact;
    CREATE INDEX memory_entries_exact ON memory_entries (agent_identity) INCLUDE (id, target, expires_at, embedding)
      WHERE embedding IS NOT NULL;
  END IF;
END
$$;


CREATE OR REPLACE FUNCTION keep_memory_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND (OLD.agent_identity, OLD.target, OLD.content) = (NEW.agent_identity, NEW.target, NEW.content)
  THEN
    RETURN NULL;
  END IF;
  EXECUTE format(
    'INSERT INTO %I.memory_history (agent_identity, entry_id, home, target, content, created_at, updated_at, metadata,'
    ' expires_at, tags, how, replaced_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)', TG_TABLE_SCHEMA)
  USING OLD.agent_identity, OLD.id, OLD.home, OLD.target, OLD.content, OLD.created_at, OLD.updated_at, OLD.metadata,
    OLD.expires_at, OLD.tags,
    CASE
      WHEN TG_OP = 'DELETE' AND OLD.expires_at <= now() THEN 'expired'
      WHEN TG_OP = 'DELETE' THEN 'removed'
      WHEN OLD.content = NEW.content THEN 'moved'
      ELSE 'edited'
    END,
    CASE WHEN TG_OP = 'UPDATE' AND OLD.content <> NEW.content THEN NEW.content END;
  RETURN NULL;
END
$$;


-- An expired row that still holds a text must not keep the same text from being stored again, by any release.
CREATE FUNCTION delete_expired_duplicate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- Another program may be allowed to insert entries and no more.
  IF has_table_privilege(TG_RELID, 'SELECT') AND has_table_privilege(TG_RELID, 'DELETE') THEN
    EXECUTE format(
      'DELETE FROM %1$I.memory_entries WHERE agent_identity = $1 AND target = $2'
      ' AND %1$I.content_key(content) = %1$I.content_key($3) AND expires_at <= now()', TG_TABLE_SCHEMA)
    USING NEW.agent_identity, NEW.target, NEW.content;
  END IF;
  RETURN NEW;
END
$$;

CREATE TRIGGER memory_entries_expired BEFORE INSERT ON memory_entries
  FOR EACH ROW EXECUTE FUNCTION delete_expired_duplicate();

COMMIT;
