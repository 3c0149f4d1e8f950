"""Databases of hermes-memory-pgvector 0.3 to 1.0 are taken over in place, and no row is lost.

The shapes below are those that the releases left behind, cut down to what decides the outcome.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from hermes_memory_pgvector.errors import DatabaseUnavailable, SchemaNotApplied
from hermes_memory_pgvector.store.schema import migrations, preflight, verification

pytestmark = [pytest.mark.each_version, not_on_citus.earlier_release]

N = 4
TABLES = f"""
    CREATE EXTENSION vector;
    CREATE TABLE memory_entries (
      id bigserial PRIMARY KEY, agent_identity text NOT NULL DEFAULT 'default',
      target text NOT NULL CHECK (target IN ('memory', 'user')), content text NOT NULL, embedding vector({N}),
      created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(),
      metadata jsonb NOT NULL DEFAULT '{{}}',
      CONSTRAINT memory_entries_unique UNIQUE (agent_identity, target, content));
    CREATE INDEX ix_memory_entries_embedding_hnsw ON memory_entries USING hnsw (embedding vector_cosine_ops);
    CREATE TABLE conversations (
      id bigserial PRIMARY KEY, session_id text NOT NULL, agent_identity text NOT NULL DEFAULT 'default',
      role text NOT NULL CHECK (role IN ('user', 'assistant', 'system', 'tool')), content text NOT NULL,
      ts timestamptz NOT NULL DEFAULT now(), embedding vector({N}), metadata jsonb NOT NULL DEFAULT '{{}}');
    CREATE INDEX ix_conversations_session_ts ON conversations (session_id, ts DESC);
    CREATE INDEX ix_conversations_embedding_hnsw ON conversations USING hnsw (embedding vector_cosine_ops);"""
ATTRIBUTION = """
    CREATE TABLE memory_agents (
      id bigserial PRIMARY KEY, agent_identity text NOT NULL UNIQUE, kind text NOT NULL DEFAULT 'theme',
      first_seen timestamptz NOT NULL DEFAULT now(), last_seen timestamptz NOT NULL DEFAULT now(),
      attrs jsonb NOT NULL DEFAULT '{}');
    CREATE TABLE memory_agent_edges (
      id bigserial PRIMARY KEY, parent_identity text, child_identity text, parent_session_id text,
      child_session_id text, kind text NOT NULL DEFAULT 'delegated', ts timestamptz NOT NULL DEFAULT now(),
      attrs jsonb NOT NULL DEFAULT '{}');
    ALTER TABLE conversations ADD COLUMN parent_session_id text;
    CREATE TABLE memory_maintenance_log (id bigserial PRIMARY KEY, operation text NOT NULL);
    CREATE VIEW v_agent_memory AS SELECT a.agent_identity, a.kind,
      (SELECT count(*) FROM memory_entries m WHERE m.agent_identity = a.agent_identity) AS memory_rows,
      (SELECT count(*) FROM conversations c WHERE c.agent_identity = a.agent_identity) AS conversation_rows
      FROM memory_agents a;"""
WORDS = "CREATE INDEX ix_conversations_content_fts ON conversations USING gin (to_tsvector('english', content));"
LONG_ENTRIES = """
    CREATE UNIQUE INDEX memory_entries_unique_md5 ON memory_entries (agent_identity, target, md5(content));
    ALTER TABLE memory_entries DROP CONSTRAINT memory_entries_unique;"""
RELEASES = {
    "0.3": TABLES,
    "0.4.0": TABLES + ATTRIBUTION,
    "0.4.1": TABLES + ATTRIBUTION + WORDS,
    "1.0": TABLES + ATTRIBUTION + WORDS + LONG_ENTRIES,
}
ROWS = """
    INSERT INTO memory_entries (id, agent_identity, target, content, embedding, created_at, updated_at, metadata) VALUES
      (7, 'sales', 'user', 'likes tea', '[1,2,3,4]', '2025-01-02Z', '2025-02-03Z', '{"session_id": "s1"}'),
      (9, 'sales', 'memory', 'likes tea', NULL, '2025-01-02Z', '2025-01-02Z', '{}'),
      (12, 'default', 'user', '喜欢 tea', '[0.1,-0.2,0.3,0]', '2025-01-03Z', '2025-01-03Z', '{}'),
      (13, 'default', 'user', 'too large for half', '[90000,1,1,1]', '2025-01-03Z', '2025-01-03Z', '{}');
    INSERT INTO conversations (id, session_id, agent_identity, role, content, ts, embedding, metadata) VALUES
      (3, 's1', 'sales', 'user', 'a question', '2025-01-02 03:04:05.678Z', '[1,0,0,0]', '{"platform": "cli"}'),
      (4, 's1', 'sales', 'assistant', 'an answer', '2025-01-02 03:04:06Z', NULL, '{}'),
      (5, 's1', 'sales', 'assistant', 'an answer', '2025-01-02 03:04:06Z', '[0,0,0,0]', '{}');"""


def execute(dsn: str, statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statements.encode())


def rows(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        return connection.execute(statement.encode()).fetchall()


def structure(server: Any, dsn: str) -> list[str]:
    if server.bin is None:
        pytest.skip("pg_dump of the tested server is not at hand")
    command = [server.bin / "pg_dump", "-s", "--no-owner", "--no-acl", "-T", "memory_maintenance_log*", "-d", dsn]
    dumped = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return [line for line in dumped.splitlines() if not line.startswith(("\\restrict", "\\unrestrict"))]


@pytest.fixture(scope="module")
def earlier_role(server: Any) -> Iterator[str]:
    """The runtime role of the earlier release; it outlives the databases in which it has privileges."""
    name = f"hermes_test_{uuid.uuid4().hex[:12]}"
    execute(server.dsn, f"CREATE ROLE {name} LOGIN PASSWORD 'for-tests'")
    yield name
    execute(server.dsn, f"DROP ROLE {name}")


@pytest.mark.parametrize("release", RELEASES)
def test_every_row_of_an_earlier_release_is_kept(empty_database: str, release: str) -> None:
    execute(empty_database, RELEASES[release] + ROWS)
    told: list[str] = []
    applied = migrations.migrate(empty_database, progress=told.append)
    assert applied == [migration.name for migration in migrations.migration_files()]
    assert "4 rows of the earlier table memory_entries taken over" in told
    with psycopg.connect(empty_database) as connection:
        assert verification.verify(connection) == verification.SchemaState(N, None, verification.LATEST)
    day = datetime(2025, 1, 2, tzinfo=UTC)
    entries = rows(
        empty_database,
        "SELECT id, agent_identity, home, target, content, embedding::text, created_at, updated_at, metadata, search "
        "FROM memory_entries ORDER BY id",
    )
    tea = {"session_id": "s1"}
    assert entries[:2] == [
        (7, "sales", "", "user", "likes tea", "[1,2,3,4]", day, datetime(2025, 2, 3, tzinfo=UTC), tea, None),
        (9, "sales", "", "memory", "likes tea", None, day, day, {}, None),
    ]
    assert [(row[0], row[4], row[5] is None) for row in entries[2:]] == [
        (12, "喜欢 tea", False),
        (13, "too large for half", True),
    ]
    turns = rows(
        empty_database,
        "SELECT id, agent_identity, session_id, parent_session_id, role, content, extract(milliseconds FROM ts)::int, "
        "embedding::text, metadata FROM conversations ORDER BY id",
    )
    assert turns == [
        (3, "sales", "s1", "", "user", "a question", 5678, "[1,0,0,0]", {"platform": "cli"}),
        (4, "sales", "s1", "", "assistant", "an answer", 6000, None, {}),
        (5, "sales", "s1", "", "assistant", "an answer", 6000, None, {}),
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_an_upgraded_database_has_the_structure_of_a_fresh_one(
    server: Any, make_database: Callable[..., str], release: str
) -> None:
    upgraded, fresh = make_database(dimensions=None), make_database(dimensions=N)
    execute(upgraded, RELEASES[release] + ROWS)
    migrations.migrate(upgraded)
    assert structure(server, upgraded) == structure(server, fresh)


def test_psql_upgrades_an_earlier_release_too(server: Any, empty_database: str) -> None:
    if server.bin is None:
        pytest.skip("psql of the tested server is not at hand")
    execute(empty_database, RELEASES["1.0"] + ROWS)
    folder = Path(migrations.__file__).resolve().parents[3] / "migrations"
    for file in sorted(folder.glob("*.sql")):
        command = [server.bin / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", empty_database, "-f", file]
        subprocess.run(command, check=True, capture_output=True, timeout=60, env={**os.environ})
    assert rows(empty_database, "SELECT count(*), (SELECT count(*) FROM conversations) FROM memory_entries") == [(4, 3)]


def test_new_rows_get_ids_after_the_earlier_ones(empty_database: str) -> None:
    execute(empty_database, RELEASES["1.0"] + ROWS)
    migrations.migrate(empty_database)
    execute(empty_database, "INSERT INTO conversations (role, content) VALUES ('user', 'new')")
    execute(empty_database, "INSERT INTO memory_entries (target, content) VALUES ('user', 'new')")
    assert rows(empty_database, "SELECT id FROM conversations WHERE content = 'new'") == [(6,)]
    assert rows(empty_database, "SELECT id FROM memory_entries WHERE content = 'new'") == [(14,)]


def test_agents_and_delegations_are_kept(empty_database: str) -> None:
    execute(empty_database, RELEASES["1.0"] + """
        INSERT INTO memory_agents (agent_identity, kind, first_seen, attrs)
          VALUES ('sales', 'theme', '2025-01-02Z', '{"a": 1}');
        INSERT INTO memory_agent_edges (id, parent_identity, child_identity, parent_session_id, ts, attrs)
          VALUES (5, 'sales', 'worker', 's1', '2025-01-02Z', '{"task": "t"}'),
            (6, NULL, NULL, NULL, '2025-01-02Z', '{}');
        INSERT INTO memory_maintenance_log (operation) VALUES ('prune');""")  # fmt: skip
    migrations.migrate(empty_database)
    day = datetime(2025, 1, 2, tzinfo=UTC)
    agents = rows(empty_database, "SELECT agent_identity, session_id, kind, first_seen, metadata FROM memory_agents")
    assert agents == [("sales", "", "theme", day, {"a": 1})]
    columns = "id, agent_identity, parent_session_id, child_session_id, at, metadata"
    assert rows(empty_database, f"SELECT {columns} FROM memory_agent_edges ORDER BY id") == [
        (5, "sales", "s1", "", day, {"task": "t", "child_identity": "worker", "kind": "delegated"}),
        (6, "default", "", "", day, {"kind": "delegated"}),
    ]
    assert rows(empty_database, "SELECT operation FROM memory_maintenance_log") == [("prune",)]


def test_added_columns_are_kept_in_metadata(empty_database: str) -> None:
    execute(empty_database, RELEASES["0.3"] + ROWS + """
        ALTER TABLE memory_entries ADD COLUMN importance int, ADD COLUMN "Who Said" text;
        UPDATE memory_entries SET importance = 3, "Who Said" = 'Ann' WHERE id = 7;
        ALTER TABLE memory_entries ADD COLUMN gone int; ALTER TABLE memory_entries DROP COLUMN gone;""")  # fmt: skip
    migrations.migrate(empty_database)
    kept = dict(rows(empty_database, "SELECT id, metadata FROM memory_entries"))
    assert kept[7] == {"session_id": "s1", "earlier_columns": {"importance": 3, "Who Said": "Ann"}}
    assert kept[9] == {}


def test_only_identical_entries_of_a_theme_are_merged_and_the_others_noted(empty_database: str) -> None:
    execute(empty_database, RELEASES["0.3"] + ROWS + """
        ALTER TABLE memory_entries DROP CONSTRAINT memory_entries_unique;
        INSERT INTO memory_entries (id, agent_identity, target, content, embedding, created_at, metadata) VALUES
          (1, 'sales', 'user', 'likes tea', NULL, '2024-01-01Z', '{"from": "first"}'),
          (30, 'sales', 'user', 'likes tea', '[4,3,2,1]', '2026-01-01Z', '{"from": "last"}'),
          (31, 'Sales', 'user', 'likes tea', NULL, now(), '{}'),
          (32, 'sales', 'user', 'likes tea ', NULL, now(), '{}');""")  # fmt: skip
    migrations.migrate(empty_database)
    found = rows(empty_database, "SELECT id, created_at, metadata, embedding::text FROM memory_entries"
                 " WHERE content = 'likes tea' AND agent_identity = 'sales' AND target = 'user'")  # fmt: skip
    assert [(row[0], row[1], row[3]) for row in found] == [(7, datetime(2024, 1, 1, tzinfo=UTC), "[1,2,3,4]")]
    others = found[0][2].pop("earlier_duplicates")
    assert [(other["id"], other["metadata"]) for other in others] == [(1, {"from": "first"}), (30, {"from": "last"})]
    assert found[0][2] == {"session_id": "s1"}
    assert rows(empty_database, "SELECT count(*) FROM memory_entries") == [(6,)]


def test_long_entries_are_upgraded(empty_database: str) -> None:
    execute(empty_database, RELEASES["1.0"])
    execute(empty_database, "INSERT INTO memory_entries (target, content) "
            "SELECT 'user', string_agg(md5(i::text), ' ') FROM generate_series(1, 5000) AS i")  # fmt: skip
    migrations.migrate(empty_database)
    assert rows(empty_database, "SELECT length(content) FROM memory_entries") == [(5000 * 33 - 1,)]


def test_the_earlier_runtime_role_can_use_the_new_tables(empty_database: str, earlier_role: str) -> None:
    execute(empty_database, RELEASES["1.0"] + f"ALTER TABLE conversations OWNER TO {earlier_role};")
    migrations.migrate(empty_database)
    with psycopg.connect(make_conninfo(empty_database, user=earlier_role, password="for-tests")) as connection:
        assert verification.verify(connection).version == verification.LATEST
        connection.execute("INSERT INTO conversations (role, content) VALUES ('user', 'x')")
        connection.execute("INSERT INTO memory_events VALUES ('default', gen_random_uuid())")
        connection.execute("INSERT INTO memory_words VALUES ('default', 'turns', 'x', 1)")


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ("CREATE VIEW mine AS SELECT content FROM memory_entries;", "memory_entries"),
        ("ALTER TABLE conversations DROP COLUMN session_id;", "session_id"),
    ],
    ids=["a view depends on it", "not our table"],
)
def test_a_database_that_cannot_be_upgraded_is_left_unchanged(
    server: Any, empty_database: str, extra: str, named: str
) -> None:
    execute(empty_database, RELEASES["1.0"] + ROWS + extra)
    before = structure(server, empty_database)
    with pytest.raises(SchemaNotApplied, match=f"002_memory.*{named}"):
        migrations.migrate(empty_database)
    after = [line for line in structure(server, empty_database) if "hermes_pgvector" not in line]
    assert [line for line in before if line not in after] == []
    assert rows(empty_database, "SELECT count(*), (SELECT count(*) FROM conversations) FROM memory_entries") == [(4, 3)]


def test_a_table_in_use_delays_the_upgrade_for_a_bounded_time(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "LOCK_TIMEOUT_S", 1)
    execute(empty_database, RELEASES["1.0"] + ROWS)
    with psycopg.connect(empty_database) as busy:
        busy.execute("SELECT count(*) FROM conversations")
        with pytest.raises(DatabaseUnavailable, match="stop the agents"):
            migrations.migrate(empty_database)
    assert "002_memory" in migrations.migrate(empty_database)
