"""Memories of other packages come in: MEMORY.md, holographic, and the database of hermes-memory-pgvector up to 1.0."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from psycopg.conninfo import make_conninfo

ENTRIES = "select target, content, tags, created_at from memory_entries where agent_identity = 'ops' order by id"
WRITTEN_AT = datetime(2025, 6, 1, 12, 0, tzinfo=UTC)
# The tables of hermes-memory-pgvector 1.0, as far as an import reads them.
TABLES = """
create table memory_entries (id bigserial primary key, agent_identity text, target text, content text,
  embedding vector(3), created_at timestamptz, updated_at timestamptz, metadata jsonb);
create table conversations (id bigserial primary key, session_id text, agent_identity text, role text, content text,
  ts timestamptz, embedding vector(3), metadata jsonb);
insert into memory_entries (agent_identity, target, content, embedding, created_at, updated_at, metadata)
  select 'Ops Team', 'memory', 'Entry number ' || n, '[1,2,3]', '2025-06-01+00', '2025-06-02+00', '{"platform": "cli"}'
  from generate_series(1, 250) as n;
insert into memory_entries (agent_identity, target, content, created_at, updated_at, metadata)
  values ('dm-telegram-1f3a5c7e9b0d2f46', 'user', 'private', now(), now(), '{}');
insert into conversations (session_id, agent_identity, role, content, ts, metadata)
  select 's' || n / 4, 'Ops Team', case n % 2 when 0 then 'user' else 'assistant' end, 'Said number ' || n,
    '2025-06-01+00'::timestamptz + n * interval '1 s', '{}' from generate_series(1, 250) as n;
"""


@pytest.fixture
def command(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    (tmp_path / "home").mkdir()
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path / "home"), "import", *arguments, "--json")


def sql(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize(("name", "target"), [("MEMORY.md", "memory"), ("USER.md", "user"), ("notes.txt", "memory")])
def test_entries_of_a_memory_file_anywhere(
    command: Callable[..., Outcome], database: str, tmp_path: Path, name: str, target: str
) -> None:
    file = tmp_path / name
    file.write_text("Staging runs on 5433.\n§\nDie Büros sind in Bern.\nUnd in Thun.\n§\nStaging runs on 5433.\n")
    os.utime(file, (WRITTEN_AT.timestamp(),) * 2)
    arguments = ("--from", "memory-file", str(file), "--theme", "ops")
    assert command(*arguments, "--dry-run").document["rows"] == {"entry": {"found": 2, "new": 2}}
    assert sql(database, ENTRIES) == []
    for new in (2, 0):
        assert command(*arguments).document["rows"] == {"entry": {"found": 2, "new": new}}
    assert sql(database, ENTRIES) == [
        (target, "Staging runs on 5433.", None, WRITTEN_AT),
        (target, "Die Büros sind in Bern.\nUnd in Thun.", None, WRITTEN_AT),
    ]


def test_a_memory_file_that_cannot_be_read_is_refused(command: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_bytes(b"\xff\xfe")
    assert command("--from", "memory-file", str(tmp_path / "MEMORY.md")).code == 2
    assert command("--from", "memory-file", str(tmp_path / "nowhere.md")).code == 2


def test_facts_of_holographic_become_entries(command: Callable[..., Outcome], database: str, tmp_path: Path) -> None:
    file = tmp_path / "memory_store.db"
    with closing(sqlite3.connect(file)) as store, store:
        store.execute(
            "create table facts (fact_id integer primary key, content text, category text, tags text, trust_score real,"
            " created_at timestamp, updated_at timestamp)"
        )
        store.executemany(
            "insert into facts values (?, ?, ?, ?, 0.5, '2025-06-01 12:00:00', '2025-06-01 12:00:00')",
            [
                (1, "Prefers tea.", "user_pref", ""),
                (2, "CI runs on Thursday.", "project", "ci, Nightly"),
                (3, " ", "", ""),
            ],
        )
    for new in (2, 0):
        done = command("--from", "holographic", str(file), "--theme", "ops")
        assert done.document["rows"] == {"entry": {"found": 2, "new": new}}
        assert [wrong["line"] for wrong in done.document["wrong"]] == [3]
    assert sql(database, ENTRIES) == [
        ("user", "Prefers tea.", ["user_pref"], WRITTEN_AT),
        ("memory", "CI runs on Thursday.", ["ci", "nightly", "project"], WRITTEN_AT),
    ]
    file.write_bytes(b"no database")
    assert command("--from", "holographic", str(file)).code == 1


def test_every_row_of_a_database_of_the_package_up_to_1_0(
    command: Callable[..., Outcome], database: str, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql(empty_database, "create extension if not exists vector")
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(TABLES.encode())
    arguments = ("--from", "hermes-memory-pgvector", make_conninfo(empty_database, password="hunter2"))
    for new in (250, 0):
        done = command(*arguments)
        assert "hunter2" not in done.shown
        assert {kind: told["new"] for kind, told in done.document["rows"].items()} == {"entry": new, "turn": new}
        assert [(done.code, wrong["line"]) for wrong in done.document["wrong"]] == [(1, 251)]
    counts = "select agent_identity, count(*), min({0}), max({0}) from {1} group by 1"
    assert sql(database, counts.format("created_at", "memory_entries")) == [
        ("ops-team", 250, datetime(2025, 6, 1, tzinfo=UTC), datetime(2025, 6, 1, tzinfo=UTC))
    ]
    assert sql(database, counts.format("ts", "conversations"))[0][:2] == ("ops-team", 250)
    monkeypatch.setenv("HERMES_PGVECTOR_SOURCE_DSN", database)
    assert "a database of this package" in command("--from", "hermes-memory-pgvector", "-").err


def test_a_source_that_cannot_be_read_is_what_the_remedy_is_about(
    command: Callable[..., Outcome], empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = "postgresql://somebody:hunter2@127.0.0.1:9/nowhere"
    from_database = ("--from", "hermes-memory-pgvector")
    refused = command(*from_database, dead)
    assert refused.code == 1
    assert "the source cannot be read: Postgres cannot be reached: " in refused.err
    assert refused.err.endswith("; start Postgres or correct the DSN of the source\n")
    assert command(*from_database, "-").err.startswith("hermes-pgvector: HERMES_PGVECTOR_SOURCE_DSN is not set")
    monkeypatch.setenv("HERMES_PGVECTOR_SOURCE_DSN", dead)
    assert command(*from_database, "-").err.endswith("; start Postgres or correct HERMES_PGVECTOR_SOURCE_DSN\n")
    lacking = command(*from_database, empty_database)
    assert (lacking.code, "migrate" in lacking.err) == (1, False)
    assert 'the source cannot be read: relation "memory_entries" does not exist' in lacking.err
    assert command(*from_database, "somewhere").code == 2
    assert "hunter2" not in refused.shown


def test_entries_are_imported_with_masks_where_the_settings_say_so(
    command: Callable[..., Outcome], database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_MASK_SECRETS_IN_ENTRIES", "true")
    file = tmp_path / "MEMORY.md"
    file.write_text("Staging has DB_PASSWORD=hunter2-and-more for now.\n")
    for _ in range(2):
        assert command("--from", "memory-file", str(file), "--theme", "ops").code == 0
    assert [row[1] for row in sql(database, ENTRIES)] == ["Staging has DB_PASSWORD=[masked: secret] for now."]
