"""A memory.db that hermes-memory itself wrote comes into a theme with its facts, scopes and history."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from peerrig.peer import python

ROWS = """
select f.kind, f.target, f.scope, f.content, f.status, s.content
from facts f left join facts s on s.agent_identity = f.agent_identity and s.id = f.superseded_by
where f.agent_identity = 'ops' order by f.written_at, f.event_id
"""


@pytest.fixture
def command(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path), *arguments)


# What hermes-memory leaves after some work in three scopes.
WORK = """
connection = db.get_connection(path)
auth = scopes.get_or_create(connection, "auth-refactor")
for text in ("D[auth]: JWT, 7 days", "D[auth]: sessions in Redis", "C[auth.cookie]: SameSite=Strict"):
    facts.write(connection, text, auth)
facts.write(connection, "V[srv.prod]: api.example.com:3005")
facts.write(connection, "V[srv.prod]: api.example.com:3006")
scopes.close(connection, auth)
again = scopes.get_or_create(connection, "auth-refactor")
# The cold fact of the same scope stays cold beside this one.
facts.write(connection, "D[auth]: sessions in Postgres", again)
billing = scopes.get_or_create(connection, "billing")
facts.write(connection, "?[invoice.tax]: who rounds?", billing)
facts.write(connection, "✓[invoice.pdf]: 已部署到生产环境", billing)
facts.search(connection, "SameSite")
connection.close()
"""
MORE = """
connection = db.get_connection(path)
facts.write(connection, "V[srv.prod]: api.example.com:3007")
connection.close()
"""
# Its last fact is only in the log of the database while this process has it open.
HELD_OPEN = """
connection = db.get_connection(path)
facts.write(connection, "V[late]: in the log of the database")
print("ready", flush=True)
input()
"""
MANY = """
connection = db.get_connection(path)
for number in range(5000):
    facts.write(connection, f"V[target.{number}]: {number}")
    connection.execute("update facts set status = 'cold' where status = 'active'")
connection.commit()
connection.close()
"""


def started(script: str, path: Path) -> subprocess.Popen[str]:
    """A process of hermes-memory that works on a database."""
    path.parent.mkdir(exist_ok=True)
    code = f"import sys\nfrom hermes_memory.core import db, facts, scopes\npath = sys.argv[1]\n{script}"
    command = [python(), "-P", "-c", code, str(path)]
    return subprocess.Popen(command, cwd=path.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def worked(script: str, path: Path) -> None:
    process = started(script, path)
    process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source" / "memory.db"
    worked(WORK, path)
    return path


def rows(dsn: str, statement: str = ROWS) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(statement.encode()).fetchall()


def bring(command: Callable[..., Outcome], path: Path, *more: str) -> Outcome:
    return command("import", "--from", "hermes-memory", str(path), "--theme", "ops", *more)


EXPECTED = [
    ("D", "auth", "auth-refactor", "JWT, 7 days", "superseded", "sessions in Redis"),
    ("D", "auth", "auth-refactor", "sessions in Redis", "superseded", "sessions in Postgres"),
    ("C", "auth.cookie", "auth-refactor", "SameSite=Strict", "cold", None),
    ("V", "srv.prod", "", "api.example.com:3005", "superseded", "api.example.com:3006"),
    ("V", "srv.prod", "", "api.example.com:3006", "active", None),
    ("D", "auth", "auth-refactor", "sessions in Postgres", "active", None),
    ("?", "invoice.tax", "billing", "who rounds?", "active", None),
    ("done", "invoice.pdf", "billing", "已部署到生产环境", "active", None),
]


def test_facts_scopes_and_history_come_over(command: Callable[..., Outcome], source: Path, database: str) -> None:
    done = bring(command, source, "--json")
    assert done.code == 0, done.err
    assert rows(database) == EXPECTED
    assert done.document["statuses"] == {"active": 4, "cold": 1, "superseded": 3}
    assert rows(database, "select label, closed_at is null from fact_scopes order by label") == [
        ("auth-refactor", True),
        ("billing", True),
    ]
    ((uses,),) = rows(database, "select uses from facts where target = 'auth.cookie'")
    assert uses == 1
    assert "found 8 facts in 2 scopes: 8 are new in theme ops" in done.err


def test_a_second_import_adds_only_what_is_new(command: Callable[..., Outcome], source: Path, database: str) -> None:
    bring(command, source)
    before = rows(database, "select * from facts order by id")
    again = bring(command, source, "--json").document
    assert (again["new"], again["known"]) == (0, 8)
    assert rows(database, "select * from facts order by id") == before
    worked(MORE, source)
    assert bring(command, source, "--json").document["new"] == 1
    values = [row[3:] for row in rows(database) if row[1] == "srv.prod"]
    assert values == [
        ("api.example.com:3005", "superseded", "api.example.com:3006"),
        ("api.example.com:3006", "superseded", "api.example.com:3007"),
        ("api.example.com:3007", "active", None),
    ]


def test_a_dry_run_counts_and_changes_nothing(command: Callable[..., Outcome], source: Path, database: str) -> None:
    told = bring(command, source, "--dry-run", "--json")
    assert (told.document["new"], told.document["dry_run"]) == (8, True)
    assert "nothing is changed" in told.err
    assert rows(database, "select id from facts") == rows(database, "select 1 from fact_scopes") == []


def test_the_later_of_two_current_facts_stays(command: Callable[..., Outcome], source: Path, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for target, content, age in (("srv.prod", "newer", -1), ("auth.cookie", "older", 400), ("x", "y", 1)):
            kind, scope = ("V", "") if target != "auth.cookie" else ("C", "auth-refactor")
            connection.execute(
                "insert into facts (agent_identity, kind, target, scope, content, written_at) "
                "values ('ops', %s, %s, %s, %s, now() - make_interval(days => %s))",
                [kind, target, scope, content, age],
            )
    assert bring(command, source, "--json").document["superseded_here"] == 1
    status = {(row[1], row[3]): row[4:] for row in rows(database)}
    assert status["srv.prod", "newer"] == ("active", None)
    assert status["srv.prod", "api.example.com:3006"] == ("superseded", "newer")
    assert status["auth.cookie", "older"] == ("superseded", "SameSite=Strict")
    assert status["auth.cookie", "SameSite=Strict"] == ("cold", None)


def test_the_source_is_not_touched(command: Callable[..., Outcome], source: Path) -> None:
    before = {path.name: path.read_bytes() for path in source.parent.iterdir()}
    assert list(before) == ["memory.db"]
    assert bring(command, source).code == 0
    assert {path.name: path.read_bytes() for path in source.parent.iterdir()} == before


def test_it_is_read_while_another_process_writes_to_it(
    command: Callable[..., Outcome], source: Path, database: str
) -> None:
    writer = started(HELD_OPEN, source)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        done = bring(command, source, "--json")
        assert done.document["new"] == 9, done.err
        assert writer.poll() is None
    finally:
        writer.communicate("\n", timeout=20)
    assert ("V", "late", "", "in the log of the database", "active", None) in rows(database)


def test_facts_of_a_linked_account_are_the_persons_and_know_the_account(
    command: Callable[..., Outcome], source: Path, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "insert into memory_person_links (agent_identity, person) values ('ops', 'dm-person-00000000000000aa')"
        )
    assert bring(command, source, "--json").document["theme"] == "dm-person-00000000000000aa"
    for table in ("facts", "fact_scopes"):
        found = rows(database, f"select distinct agent_identity, metadata ->> 'linked_account' from {table}")
        assert found == [("dm-person-00000000000000aa", "ops")]


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:6000])


def scribbled(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:20_000] = os.urandom(20_000 - 4096)
    path.write_bytes(content)


def no_database(path: Path) -> None:
    path.write_text("Dear diary, today nothing happened. " * 200)


def another_one(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("create table notes (id, text)")
    connection.close()


@pytest.mark.parametrize("damage", [cut_off, scribbled, no_database, another_one])
def test_a_damaged_file_is_refused_whole(
    command: Callable[..., Outcome], source: Path, database: str, damage: Callable[[Path], None]
) -> None:
    damage(source)
    done = bring(command, source)
    assert done.code == 1
    assert f"{source} cannot be read as a database of hermes-memory" in done.err
    assert "nothing is imported" in done.err
    assert rows(database) == []


def test_what_cannot_be_stored_is_skipped_and_named(
    command: Callable[..., Outcome], source: Path, database: str
) -> None:
    connection = sqlite3.connect(source)
    connection.execute("update facts set content = ' ' where target = 'invoice.tax'")
    connection.execute("update facts set created_at = 'soon' where target = 'invoice.pdf'")
    connection.execute(
        "update facts set content = x'00410a', target = 'a' || char(0) || 'b' where target = 'auth.cookie'"
    )
    connection.commit()
    connection.close()
    done = bring(command, source, "--json")
    assert done.code == 1
    assert len(done.document["skipped"]) == 3
    assert len(rows(database)) == 5


def test_a_missing_file_and_a_wrong_theme_are_named(command: Callable[..., Outcome], source: Path) -> None:
    missing = bring(command, source.with_name("no.db"))
    assert (missing.code, "is no file" in missing.err) == (2, True)
    reserved = command("import", "--from", "hermes-memory", str(source), "--theme", "dm-person-0123456789abcdef")
    assert (reserved.code, "reserved" in reserved.err) == (2, True)
    assert command("import", str(source)).code == 2
    assert command("import", "--from", "elsewhere", str(source)).code == 2


def test_facts_of_the_future_do_not_displace_those_of_tomorrow(
    command: Callable[..., Outcome], source: Path, database: str
) -> None:
    connection = sqlite3.connect(source)
    connection.execute("update facts set created_at = created_at + 1000000000")
    connection.commit()
    connection.close()
    assert bring(command, source).code == 0
    assert rows(database, "select count(*) from facts where written_at > now() + interval '2 seconds'") == [(0,)]


@pytest.mark.slow
def test_a_large_memory_comes_over(command: Callable[..., Outcome], source: Path, database: str) -> None:
    worked(MANY, source)
    assert bring(command, source, "--json").document["new"] == 5008
    assert bring(command, source, "--json").document["new"] == 0


def test_facts_that_were_erased_stay_out_of_the_next_import(
    command: Callable[..., Outcome], source: Path, database: str
) -> None:
    assert bring(command, source).code in (0, 1)
    assert command("erase", "--text", "sessions in Postgres", "--yes").code in (0, 3)
    assert bring(command, source, "--json").document["erased"] == 1
    assert not [row for row in rows(database) if "Postgres" in row[3]]
