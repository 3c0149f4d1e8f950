"""doctor on a database that answers: what it names, beside the faults of test_doctor_faults.py."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from loopback import Endpoint
from past_sessions import SAID_AT, Record
from psycopg import sql

from hermes_memory_pgvector.admin import refusal
from hermes_memory_pgvector.admin.doctor import server as checks
from hermes_memory_pgvector.admin.doctor.tables import tables
from hermes_memory_pgvector.model import now
from hermes_memory_pgvector.store.diagnosis import Health

Run = Callable[..., Outcome]
SOUND = Health(
    standby=False, read_only="", encrypted=True, client="", synchronous_commit="on", standbys=0,
    synchronous_standbys=False, clock=now(), broken_indexes=(), bloated=(),
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command for a home that uses the database."""
    values = {"DSN": database, "EMBED_URL": endpoint.url, "EMBED_MODEL": "words"}
    for name, value in values.items():
        monkeypatch.setenv(f"HERMES_PGVECTOR_{name}", value)
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path), "--json", *arguments)


def found_by(run: Run, *arguments: str) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in run("doctor", *arguments).document["checks"]}


def execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set default_transaction_read_only = off")
        for statement in statements:
            connection.execute(sql.SQL(statement))  # type: ignore[arg-type]


def test_a_sound_database_has_no_problem(run: Run) -> None:
    found = found_by(run, "--canary")
    names = ("writes", "clock", "indexes", "statements", "canary")
    assert {name: found[name]["verdict"] for name in names} == dict.fromkeys(names, "ok")
    assert {"encryption", "bloat"}.isdisjoint(found)
    assert "recalled by meaning" in found["canary"]["found"]


def test_sessions_from_before_the_memory_are_named_until_they_are_stored(run: Run, tmp_path: Path) -> None:
    assert "past sessions" not in found_by(run)
    record = Record(tmp_path)
    record.say("s1", 1)
    record.say("job", 2, source="cron")
    check = found_by(run)["past sessions"]
    assert check["verdict"] == "ok"
    assert check["found"].startswith("1 session ")
    command = check["remedy"].removeprefix("to store them: hermes-pgvector ").split()
    assert run(*command).document["rows"] == {"turn": {"found": 1, "new": 1}}
    assert "past sessions" not in found_by(run)
    # What has no time is none of them.
    record.say("s3", 4)
    with closing(sqlite3.connect(record.path)) as database, database:
        database.execute("update messages set timestamp = 'yesterday' where session_id = 's3'")
    assert "past sessions" not in found_by(run)
    # A session that goes on is none that is over.
    record.say("s2", 3, day=(now() - SAID_AT).days + 1)
    assert "past sessions" not in found_by(run)


def test_past_sessions_of_which_nothing_is_stored_are_named_until_an_import_has_read_them(
    run: Run, tmp_path: Path, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(tmp_path)
    record.say("s1", 1)
    with closing(sqlite3.connect(record.path)) as database, database:
        database.execute("update messages set content = 'ok'")
    bring = ("import", "--from", "state-db")
    assert run(*bring, "--dry-run").code == 0
    assert found_by(run)["past sessions"]["found"].startswith("1 session ")
    assert run(*bring).document["rows"] == {"turn": {"found": 0, "new": 0}}
    assert "past sessions" not in found_by(run)
    # Another database has nothing of them.
    with monkeypatch.context() as patch:
        patch.setenv("HERMES_PGVECTOR_DSN", empty_database)
        assert run("migrate", "--dimensions", "384").code == 0
        assert found_by(run)["past sessions"]["found"].startswith("1 session ")
    # New ones are over, as when another memory was in use.
    note = tmp_path / "pgvector" / "past_sessions"
    note.write_text(f"{note.read_text().split()[0]} {SAID_AT.timestamp() + 90}")
    record.say("s2", 2)
    assert found_by(run)["past sessions"]["found"].startswith("1 session ")


def test_a_record_of_sessions_that_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"no database" * 1000)
    assert found_by(run)["past sessions"]["verdict"] == "warning"


def test_the_graph_of_a_bloated_table_is_built_anew_before_vacuum() -> None:
    bloated = replace(SOUND, bloated=("conversations", "memory_events"), indexes=("conversations_meaning",))
    remedies = {
        distributed: [check.remedy for check in tables(bloated, complete=False, distributed=distributed)][-1]
        for distributed in (False, True)
    }
    assert remedies[False].endswith(
        ": reindex index concurrently conversations_meaning; vacuum conversations, memory_events;"
    )
    assert remedies[True].endswith(": vacuum conversations, memory_events;")


def test_statements_that_would_fail_are_named_with_the_reason(run: Run, database: str) -> None:
    execute(database, "alter table memory_withdrawals rename column session_id to session")
    check = found_by(run)["statements"]
    assert check["verdict"] == "problem"
    assert 'column "session_id"' in check["found"]
    assert "withdraw" in check["found"]
    execute(database, "alter table memory_withdrawals rename column session to session_id")
    assert found_by(run)["statements"]["verdict"] == "ok"


@not_on_citus.triggers
def test_the_canary_finds_what_no_plan_shows(run: Run, database: str) -> None:
    execute(
        database,
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no' $$".replace(
            "'no' $$", "'no'; end $$"
        ),
        "create trigger refuse before insert on memory_entries for each row execute function refuse()",
    )
    found = found_by(run, "--canary")
    assert found["statements"]["verdict"] == "ok"
    assert found["canary"]["verdict"] == "problem"
    execute(database, "drop trigger refuse on memory_entries")
    assert found_by(run, "--canary")["canary"]["verdict"] == "ok"


def test_the_canary_leaves_nothing(run: Run, database: str) -> None:
    assert run("doctor", "--canary").document["checks"]
    with psycopg.connect(database) as connection:
        for table in ("memory_entries", "memory_history", "memory_events", "memory_tombstones"):
            assert connection.execute(f"select count(*) from {table}").fetchone() == (0,), table


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        ({"synchronous_commit": "off"}, "durability", "synchronous_commit is off"),
        ({"standby": True}, "writes", "is a standby"),
        ({"standbys": 1}, "durability", "1 standby may lag"),
        ({"standbys": 2, "synchronous_standbys": True}, "", ""),
        ({"client": "10.0.0.7", "encrypted": False}, "encryption", "10.0.0.7 is not encrypted"),
        ({"client": "127.0.0.1", "encrypted": False}, "", ""),
        ({"read_only": "configuration file"}, "writes", "read-only"),
    ],
)
def test_the_mode_of_a_server(change: dict[str, Any], name: str, said: str) -> None:
    found = list(checks._modes(replace(SOUND, **change), "agent", "memory", owned=False))
    bad = [check for check in found if check.verdict != "ok"]
    assert [(check.name, said in check.found) for check in bad] == ([(name, True)] if name else [])
    assert all(check.remedy for check in bad)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ('FATAL:  too many connections for database "me""mory"', 'alter database "me""""mory" connection limit -1'),
        ("FATAL:  sorry, too many clients already", "raise max_connections"),
        ("FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", "max_connections"),
        ("fe_sendauth: no password supplied", "HERMES_PGVECTOR_DSN in /home/of/agents/.env"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.7", user "a", database "m", no encryption', "sslmode"),
        ("server does not support SSL, but SSL was required", "sslmode"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.7", user "a", database "m", SSL encryption', "let pg_hba.conf"),
        ('FATAL:  permission denied for database "me""mory"', 'grant connect on database "me""""mory" to ROLE;'),
        ('FATAL:  database "memory" does not exist', "correct the database in HERMES_PGVECTOR_DSN"),
        ("FATAL:  the database system is starting up", "wait until the server has started"),
        ('could not translate host name "db1" to address: Name or service not known', "correct the host in"),
        ('FATAL:  role "agent" does not exist', "correct HERMES_PGVECTOR_DSN"),
        ('connection is bad: invalid sslmode value: "requir"', "correct HERMES_PGVECTOR_DSN"),
        ("connection timeout expired", "start Postgres"),
    ],
)
def test_the_remedy_for_a_refused_connection(problem: str, told: str) -> None:
    remedy = refusal.of_home(f"Postgres cannot be reached: {problem}", Path("/home/of/agents"))
    assert told in remedy
    assert ("start Postgres" in remedy) == ("timeout" in problem)


def test_the_remedy_for_a_refused_administrator_names_where_the_password_belongs() -> None:
    problem = "Postgres cannot be reached: fe_sendauth: no password supplied"
    assert refusal.remedy(problem, "--dsn", "~/.pgpass") == "write the right password into ~/.pgpass"


@pytest.mark.parametrize(("seconds", "verdict"), [(0, "ok"), (4, "ok"), (-4, "ok"), (6, "warning"), (-3600, "warning")])
def test_clocks_that_differ(seconds: int, verdict: str) -> None:
    check = checks._clock(timedelta(seconds=seconds))
    assert (check.verdict, str(abs(seconds)) in check.found) == (verdict, verdict == "warning")


def test_a_degraded_search_has_an_exit_code_of_its_own(run: Run, endpoint: Endpoint) -> None:
    assert run("search", "anything").code == 0
    endpoint.close()
    assert run("search", "anything").code == 3
