-- Which accounts belong to one person: their events and rows are those of the person's theme.

BEGIN;

INSERT INTO hermes_pgvector_migrations (version, name) VALUES (11, '011_person_links');

-- `agent_identity` is the theme of an account: a keyed hash of a private chat, or the theme of a profile. `person` is a
-- theme that has no other meaning. Both are names of themes, so that no id of an account gets into the database. An
-- account has one person, a person is no account, and rooms are neither.
CREATE TABLE memory_person_links (
  agent_identity  text PRIMARY KEY CHECK (agent_identity !~ '^(dm-person|group-[a-z0-9_]{1,24})-[0-9a-f]{16}$'),
  person          text NOT NULL CHECK (person ~ '^dm-person-[0-9a-f]{16}$'),
  linked_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX memory_person_links_person ON memory_person_links (person);

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
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON memory_person_links TO %s', grantee);
  END LOOP;
END
$$;

COMMIT;
