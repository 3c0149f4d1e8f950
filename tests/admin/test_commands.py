"""The commands on real databases, with an embedding endpoint on loopback."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from loopback import Endpoint, vector
from psycopg import sql
from psycopg.conninfo import make_conninfo
from waiting import wait_for

from hermes_memory_pgvector.admin.web.reading import Reader
from hermes_memory_pgvector.embedding.probe import PROBE_S_MIN
from hermes_memory_pgvector.settings import load
from hermes_memory_pgvector.store import clients
from hermes_memory_pgvector.store.embedded.server import EmbeddedServer, available
from hermes_memory_pgvector.store.schema.migrations import migration_files
from hermes_memory_pgvector.store.schema.preflight import admin_connection
from hermes_memory_pgvector.store.schema.verification import LATEST, TABLES

IMPORTED_FROM = os.environ.get("PYTHONPATH", "")
MIGRATIONS = [migration.name for migration in migration_files()]
SPOILT = "zebra"
ADMINISTRATORS = "hermes-pgvector migrate --dsn postgresql://ADMIN@HOST/DATABASE --runtime-role {role}"


class PickyEndpoint(Endpoint):
    """Answers only zeros for texts with a certain word, as a broken model does, and dies after `texts_max` texts.

    Its `limited_at`th request, and all that come within `retry_after_s` after it, are too many.
    """

    texts_max = limited_at = 1 << 30
    limited_until = 0.0

    def _answer(self, texts: list[str]) -> dict[str, Any]:
        if self.requests + 1 == self.limited_at:
            self.limited_until = time.monotonic() + (self.retry_after_s or 0)
        if self.status in (200, 429):
            self.status = 429 if time.monotonic() < self.limited_until else 200
        if self.texts + len(texts) > self.texts_max:
            self.status = 503
        answer = super()._answer(texts)
        for text, item in zip(texts, answer["data"], strict=True):
            if SPOILT in text:
                item["embedding"] = [0.0] * self.dimensions
        return answer


@pytest.fixture
def endpoint() -> Iterator[PickyEndpoint]:
    running = PickyEndpoint()
    yield running
    running.close()


@pytest.fixture
def run(
    tmp_path: Path, database: str, endpoint: PickyEndpoint, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """Run a command line for a home that uses the database and the endpoint."""
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_URL", endpoint.url)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_MODEL", "words")

    def run(*arguments: str) -> Outcome:
        return hermes_pgvector("--home", str(tmp_path), *arguments)

    return run


def add_turns(dsn: str, contents: list[str], theme: str = "ops", session: str = "s1") -> None:
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO conversations (agent_identity, session_id, role, content) VALUES (%s, %s, 'user', %s)",
            [(theme, session, content) for content in contents],
        )


def value(dsn: str, statement: str) -> Any:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return row[0]


def unembedded(dsn: str) -> int:
    return int(value(dsn, "SELECT count(*) FROM conversations WHERE embedding IS NULL"))


@pytest.fixture
def make_role(database: str) -> Iterator[Callable[[], str]]:
    """Make login roles without any right."""
    made: list[str] = []

    def make() -> str:
        made.append(f"hermes_cli_{uuid.uuid4().hex[:8]}")
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(made[-1])))
        return made[-1]

    yield make
    for role in made:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_status_of_a_locked_table_names_doctor(run: Callable[..., Outcome], database: str) -> None:
    with psycopg.connect(database) as blocker:
        blocker.execute("lock table conversations")
        told = run("status")
    assert told.code == 1
    assert "a table is locked by another transaction; for more: hermes-pgvector " in told.err


@pytest.mark.parametrize(
    ("table", "command"),
    [
        ("conversations", "list"), ("memory_entries", "show 1"), ("conversations", "themes"),
        ("conversations", "sessions"), ("conversations", "stats"), ("conversations", "quarantine list"),
        ("conversations", "prune --before 1d --dry-run"), ("memory_entries", "dedupe --dry-run"),
        ("memory_entries", "edit 1"), ("memory_history", "history"), ("memory_history", "undo 1"),
        ("memory_renames", "remap"), ("memory_erasures", "erase --list"), ("facts", "facts list"),
        ("facts", "facts export"),
    ],
)  # fmt: skip
def test_a_command_beside_a_locked_table_says_so(
    run: Callable[..., Outcome], database: str, table: str, command: str
) -> None:
    with psycopg.connect(database) as blocker:
        blocker.execute("insert into memory_entries (agent_identity, target, content) values ('ops', 'memory', 'one')")
        blocker.execute("insert into conversations (agent_identity, role, content) values ('ops', 'user', 'one')")
        blocker.commit()
        blocker.execute(sql.SQL("lock table {}").format(sql.Identifier(table)))
        told = run(*command.split())
    assert told.code == 1
    # Without a limit for locks, a statement that is ended by another limit says something else.
    assert "locked by another transaction; for more: hermes-pgvector " in told.err
    assert told.err.count("for more") == 1


def test_a_command_beside_a_database_that_only_reads_names_doctor_once(
    run: Callable[..., Outcome], database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("alter database {} set default_transaction_read_only = on").format(name))
    told = run("erase", "--theme", "ops", "--yes")
    assert (told.code, told.err.count("hermes-pgvector doctor")) == (1, 1)


# migrate


def test_migrate_applies_every_file_once(run: Callable[..., Outcome], empty_database: str) -> None:
    first = run("migrate", "--dsn", empty_database, "--json")
    assert first.code == 0
    assert first.document["applied"] == MIGRATIONS
    for name in MIGRATIONS:
        assert name in first.err
    again = run("migrate", "--dsn", empty_database)
    assert again.code == 0
    assert "nothing to do" in again.out


def test_migrate_tells_the_version_of_a_database_that_is_newer_than_this_release(
    run: Callable[..., Outcome], database: str
) -> None:
    with psycopg.connect(database) as connection:
        newer = LATEST + 1
        connection.execute("insert into hermes_pgvector_migrations values (%s, 'of the future', 'x')", [newer])
    assert f"has schema version {newer}" in run("migrate").out
    assert run("migrate", "--json").document["version"] == newer
    told = {check["name"]: check for check in run("doctor", "--json").document["checks"]}["schema"]
    assert (told["verdict"], "git pull" in told["remedy"]) == ("warning", True)
    assert f"newer than this release, which knows version {LATEST}" in told["found"]


def test_an_administrators_command_names_the_primary_on_a_standby(run: Callable[..., Outcome], database: str) -> None:
    read_only = make_conninfo(database, options="-c default_transaction_read_only=on")
    for command in (("migrate",), ("erase", "--vacuum", "--yes")):
        refused = run(*command, "--dsn", read_only)
        assert (refused.code, refused.out) == (1, "")
        assert "in a read-only transaction, as all of a standby; run it on the primary: --dsn" in refused.err
        assert refused.err.count("\n") == 1


@pytest.mark.parametrize("command", ["tune", "erase --vacuum --yes", "grants list", "reembed --model other --yes"])
def test_an_administrators_command_names_migrate_in_a_database_without_tables(
    run: Callable[..., Outcome], empty_database: str, command: str
) -> None:
    refused = run(*command.split(), "--dsn", empty_database)
    assert (refused.code, refused.out) == (1, "")
    assert "has no memory schema on its search_path; run: hermes-pgvector migrate --dsn" in refused.err


def test_migrate_takes_the_dimensions_of_the_embedder_unless_given(
    run: Callable[..., Outcome], endpoint: PickyEndpoint, make_database: Callable[..., str]
) -> None:
    asked, told = make_database(dimensions=None), make_database(dimensions=None)
    endpoint.dimensions = 96
    assert run("migrate", "--dsn", asked).code == 0
    assert run("migrate", "--dsn", told, "--dimensions", "128").code == 0
    length = "SELECT atttypmod FROM pg_attribute WHERE attrelid = 'conversations'::regclass AND attname = 'embedding'"
    assert value(asked, length) == 96
    assert value(told, length) == 128
    again = run("migrate", "--dsn", told, "--dimensions", "96")
    assert "nothing to do" in again.out
    assert "--dimensions 96 was ignored" in again.err
    assert "vectors of 128 dimensions" in again.err
    assert run("migrate", "--dsn", told, "--dimensions", "128").err == ""


def test_migrate_guesses_no_dimensions_while_the_embedder_is_down(
    run: Callable[..., Outcome], endpoint: PickyEndpoint, empty_database: str
) -> None:
    endpoint.status = 503
    outcome = run("migrate", "--dsn", empty_database)
    assert outcome.code == 1
    assert "--dimensions" in outcome.err
    assert value(empty_database, "SELECT to_regclass('conversations') IS NULL")


def test_migrate_prefers_the_administrators_variable_to_the_settings(
    run: Callable[..., Outcome], empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_ADMIN_DSN", empty_database)
    assert run("migrate", "--json").document["applied"] == MIGRATIONS


def test_a_runtime_role_gets_what_agents_need(
    run: Callable[..., Outcome], database: str, make_role: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    role = make_role()
    monkeypatch.setenv("HERMES_PGVECTOR_ADMIN_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", make_conninfo(database, user=role))
    assert run("status").code == 1
    assert run("migrate", "--runtime-role", role).code == 0
    assert run("status").code == 0
    checks = {check["name"]: check for check in run("doctor", "--json").document["checks"]}
    assert checks["role"]["verdict"] == "ok"


def test_migrate_narrows_a_role_when_no_agent_of_an_earlier_release_uses_it(
    run: Callable[..., Outcome], database: str, make_role: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def verdict() -> tuple[str, str, str]:
        checks = {check["name"]: check for check in run("doctor", "--json").document["checks"]}
        return checks["role"]["verdict"], checks["role"]["found"], checks["role"]["remedy"]

    role = make_role()
    agent = make_conninfo(database, user=role)
    monkeypatch.setenv("HERMES_PGVECTOR_ADMIN_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", agent)
    assert run("migrate", "--runtime-role", role).code == 0
    assert verdict()[0] == "ok"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("GRANT DELETE ON memory_history TO {}").format(sql.Identifier(role)))
    found, what, remedy = verdict()
    assert (found, remedy.endswith(f"--runtime-role {role}")) == ("warning", True)
    assert "delete on memory_history" in what
    with psycopg.connect(agent, application_name="hermes-pgvector/14"):
        assert f"agents of an earlier release connect as {role}" in run("migrate", "--runtime-role", role).err
        assert verdict()[0] == "warning"
    with admin_connection(database) as connection:
        wait_for(lambda: not clients.older(connection))
    assert run("migrate", "--runtime-role", role).err.count("earlier release") == 0
    assert verdict()[0] == "ok"


@pytest.mark.parametrize("option", ["--runtime-role", "--reader-role"])
def test_a_role_that_does_not_exist_is_to_be_made_first(
    run: Callable[..., Outcome], database: str, option: str
) -> None:
    refused = run("migrate", "--dsn", database, option, "nobody_here")
    assert refused.code == 1
    make = 'CREATE ROLE "nobody_here" LOGIN;\n'
    assert f"role 'nobody_here' does not exist on the server; make it first, in psql: {make}" in refused.err


def test_a_reader_role_reads_everything_but_the_keys_and_changes_nothing(
    run: Callable[..., Outcome], database: str, make_role: Callable[[], str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    role, agent = make_role(), make_role()
    add_turns(database, ["one turn"], theme="ops")
    assert run("migrate", "--dsn", database, "--runtime-role", agent).code == 0
    keys = "SELECT name FROM hermes_pgvector_settings WHERE name IN ('person_key', 'oldest_client') ORDER BY name"
    with psycopg.connect(database) as owner:
        owner.execute("SELECT claim_memory_setting('person_key', repeat('0', 64))")
    assert f"role {role} may read" in run("migrate", "--dsn", database, "--reader-role", role).err
    dsn = make_conninfo(database, user=role)
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", dsn)
    assert [theme["theme"] for theme in run("themes", "--json").document["themes"]] == ["ops"]
    with Reader(load(tmp_path), tmp_path, persons=False).transaction() as reading:
        assert reading.execute("SELECT content FROM conversations").fetchall() == [{"content": "one turn"}]
    found = run("search", "one turn", "--theme", "ops", "--json").document
    assert found["turns"]["explanation"]["rows"] == 1
    assert "exported 0 entries, 1 turn" in run("export", str(tmp_path / "memory.jsonl")).err
    with psycopg.connect(make_conninfo(database, user=agent)) as connection:
        assert connection.execute(keys).fetchall() == [("oldest_client",), ("person_key",)]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE conversations (name text)")
        assert connection.execute(keys).fetchall() == [("oldest_client",)]
        connection.execute("DROP TABLE pg_temp.conversations")
        for name in TABLES:
            table = sql.Identifier(name)
            connection.execute(sql.SQL("SELECT FROM {}").format(table))
            for refused in ("DELETE FROM {}", "TRUNCATE {}", "INSERT INTO {} DEFAULT VALUES"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(sql.SQL(refused).format(table))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT prune_memory_history(1)")


def test_a_reader_of_a_database_without_a_model_is_not_told_of_another_one(
    run: Callable[..., Outcome], database: str, make_role: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_turns(database, ["The bridge over the Aare was built of stone."])
    role = make_role()
    assert run("migrate", "--dsn", database, "--reader-role", role).code == 0
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", make_conninfo(database, user=role))
    shown = run("preview", "Who built the bridge over the Aare?", "--theme", "ops")
    assert (shown.code, "degraded" in shown.err) == (0, False), shown.err


# status and doctor


def test_status_counts_rows_by_theme(run: Callable[..., Outcome], database: str) -> None:
    add_turns(database, [f"turn {number}" for number in range(5)], theme="billing")
    add_turns(database, ["one more"], theme="ops")
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO memory_entries (agent_identity, target, content) "
            "VALUES ('ops', 'memory', 'a'), ('ops', 'user', 'b')"
        )
        connection.execute(
            "UPDATE conversations SET embedding = %s::halfvec WHERE agent_identity = 'ops'", [str(vector("x"))]
        )
    outcome = run("status", "--json")
    assert outcome.code == 0
    found = outcome.document
    assert found["rows"] == {
        "entries": 2, "entries_without_vector": 2, "turns": 6, "turns_without_vector": 5, "facts": 0,
        "facts_without_vector": 0, "without_words": 8, "themes": 2,
    }  # fmt: skip
    themes = {row["theme"]: (row["entries"], row["turns"], row["without_vector"]) for row in found["themes"]}
    assert themes == {"billing": (0, 5, 5), "ops": (2, 1, 2)}
    assert [row["theme"] for row in run("status", "--themes", "1", "--json").document["themes"]] == ["billing"]
    assert found["vectors"]["dimensions"] == 384
    shown = run("status").out
    assert "2 entries and 6 turns in 2 themes" in shown
    assert "7 rows, found by words only" in shown


def test_status_of_a_database_without_tables_names_the_command(
    run: Callable[..., Outcome], empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", empty_database)
    outcome = run("status", "--json")
    assert outcome.code == 1
    assert outcome.document["database"]["reachable"] is True
    assert outcome.document["database"]["schema_version"] is None
    assert "hermes-pgvector migrate" in outcome.err


@pytest.mark.on_citus
def test_doctor_finds_nothing_broken_in_a_sound_installation(
    run: Callable[..., Outcome], tmp_path: Path, database: str
) -> None:
    (tmp_path / "config.yaml").write_text("memory:\n  provider: pgvector\n")
    run("install")
    outcome = run("doctor", "--json")
    checks = {check["name"]: check["verdict"] for check in outcome.document["checks"]}
    found = {check["name"]: check["found"] for check in outcome.document["checks"]}
    assert outcome.code == 0
    assert {name for name, verdict in checks.items() if verdict == "problem"} == set()
    assert all(checks[name] == "ok" for name in ("database", "pgvector", "schema", "embedder", "model", "rows"))
    assert checks["role"] == "warning", "the tests connect as a superuser"
    (milliseconds,) = re.findall(r"answers in (\d+) ms with 384 dimensions", found["embedder"])
    assert int(milliseconds) < 60_000


def test_doctor_names_the_rights_that_a_role_lacks(
    run: Callable[..., Outcome], database: str, make_role: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    role = make_role()
    run("migrate", "--dsn", database, "--runtime-role", role)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("REVOKE DELETE ON memory_entries FROM {}").format(sql.Identifier(role)))
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", make_conninfo(database, user=role))
    outcome = run("doctor", "--json")
    check = next(check for check in outcome.document["checks"] if check["name"] == "role")
    assert outcome.code == 1
    assert check["verdict"] == "problem"
    assert "delete on memory_entries" in check["found"]
    assert check["remedy"] == ADMINISTRATORS.format(role=role)


@not_on_citus.bare_database
def test_doctor_names_one_command_that_makes_a_bare_database_ready_for_the_role(
    run: Callable[..., Outcome], empty_database: str, make_role: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    role = make_role()
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", make_conninfo(empty_database, user=role))
    checks = {check["name"]: check for check in run("doctor", "--json").document["checks"]}
    assert checks["schema"]["remedy"] == ADMINISTRATORS.format(role=role)
    assert "run:" not in checks["schema"]["found"]
    assert "is on the server, but not in this database" in checks["pgvector"]["found"]
    command = ADMINISTRATORS.format(role=role).replace("postgresql://ADMIN@HOST/DATABASE", shlex.quote(empty_database))
    try:
        assert run(*shlex.split(command)[1:]).code == 0
        verdicts = {check["name"]: check["verdict"] for check in run("doctor", "--json").document["checks"]}
        assert {verdicts[name] for name in ("pgvector", "schema", "role")} == {"ok"}
    finally:
        with psycopg.connect(empty_database, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))


def test_doctor_sees_vectors_of_another_model(
    run: Callable[..., Outcome], database: str, endpoint: PickyEndpoint
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO hermes_pgvector_settings (name, value) VALUES ('embedding_model', 'other')")
    check = next(check for check in run("doctor", "--json").document["checks"] if check["name"] == "model")
    assert check["verdict"] == "problem"
    assert "other" in check["found"]
    endpoint.dimensions = 96
    check = next(check for check in run("doctor", "--json").document["checks"] if check["name"] == "model")
    assert check["verdict"] == "problem"
    assert "96" in check["found"]


def test_doctor_changes_nothing_in_the_database(run: Callable[..., Outcome], database: str) -> None:
    run("doctor")
    run("status")
    assert value(database, "SELECT count(*) FROM hermes_pgvector_settings WHERE name = 'embedding_model'") == 0
    assert value(database, "SELECT count(*) FROM hermes_pgvector_leases") == 0


# search


def test_search_finds_what_an_agent_of_the_theme_would_find(
    run: Callable[..., Outcome], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_turns(database, ["the kittens are in the kitchen", "the invoices are in the cellar"], theme="ops")
    add_turns(database, ["the kittens of billing are in the barn"], theme="billing")
    run("backfill")
    found = run("search", "where are the kittens", "--theme", "Ops", "--kind", "turns", "--json")
    assert found.code == 0
    assert set(found.document) == {"query", "theme", "scope", "turns"}
    hits = found.document["turns"]["hits"]
    assert hits[0]["content"] == "the kittens are in the kitchen"
    assert {hit["theme"] for hit in hits} == {"ops"}
    assert found.document["turns"]["explanation"]["rows"] == 2
    alone = run("search", "kittens", "--theme", "ops", "--scope", "all", "--json").document
    assert {hit["theme"] for hit in alone["turns"]["hits"]} == {"ops"}
    monkeypatch.setenv("HERMES_PGVECTOR_CROSS_THEME_RECALL", "all")
    everywhere = run("search", "kittens", "--theme", "ops", "--scope", "all", "--json").document
    assert {hit["theme"] for hit in everywhere["turns"]["hits"]} == {"ops", "billing"}
    assert everywhere["memory"]["hits"] == []


def test_a_known_model_becomes_that_of_the_database_when_it_has_answered_and_not_before(
    run: Callable[..., Outcome],
    make_database: Callable[..., str],
    endpoint: PickyEndpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    empty = make_database(dimensions=768)
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", empty)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_MODEL", "nomic-embed-text")
    endpoint.dimensions = 768
    endpoint.close()
    asked = run("search", "kittens")
    assert asked.code == 3
    assert "degraded: by words only: " in asked.err
    assert run("backfill").code == 1
    assert run("status", "--json").document["vectors"] == {"dimensions": 768, "model": None}
    endpoint.reopen()
    assert "degraded" not in run("search", "kittens").err
    assert run("status", "--json").document["vectors"]["model"] == "nomic-embed-text"


def test_search_explains_how_its_answer_came_about(run: Callable[..., Outcome], database: str) -> None:
    add_turns(database, ["the kittens are in the kitchen"], theme="default")
    run("backfill")
    shown = run("search", "kittens", "--explain").out
    for word in ("1 row in scope", "plan: exact", "similarity 0.", "BM25", "embed", "session s1"):
        assert word in shown


def test_search_prints_no_control_characters_of_a_memory(run: Callable[..., Outcome], database: str) -> None:
    add_turns(database, ["kittens \x1b[31mred\x1b[0m \x9b2J [bold]all[/bold] \u202e over"], theme="default")
    run("backfill")
    shown = run("search", "kittens").out
    assert "[bold]all[/bold]" in shown
    assert not set("\x1b\x9b\u202e") & set(shown)
    assert run("search", "kittens", "--json").out.isascii()


def test_search_prints_that_vector_search_was_left_out(
    run: Callable[..., Outcome], database: str, endpoint: PickyEndpoint
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO conversations (agent_identity, role, content, search) "
            "VALUES ('default', 'user', 'kittens in the kitchen', to_tsvector('english', 'kittens in the kitchen'))"
        )
    endpoint.status = 503
    outcome = run("search", "kittens", "--kind", "turns")
    assert outcome.code == 3
    assert "kittens in the kitchen" in outcome.out
    assert "degraded: " in outcome.err


def test_search_stores_the_events_of_an_ended_process(
    run: Callable[..., Outcome], tmp_path: Path, database: str
) -> None:
    code = (
        "import os, sys, pathlib; from hermes_memory_pgvector.outbox.spool import Spool;"
        "from hermes_memory_pgvector.model import TurnTaken;"
        "s = Spool(pathlib.Path(sys.argv[1]), bytes_max=1 << 20, window_max=5);"
        "say = lambda text: s.append(TurnTaken(theme='default', session_id='z', user=text, assistant=''));"
        "[say(f'cupboard {number} is empty') for number in range(500)];"
        "say('lost kittens are in the kitchen');"
        "os._exit(0)"
    )
    spool = tmp_path / "pgvector" / "spool"
    subprocess.run(
        [sys.executable, "-P", "-c", code, str(spool)], env={"PYTHONPATH": IMPORTED_FROM}, check=True, cwd="/"
    )
    assert run("status", "--json").document["spool"]["events"] == 501
    assert "lost kittens" in run("search", "kittens", "--kind", "turns").out
    assert run("status", "--json").document["spool"]["events"] == 0


# backfill


def test_backfill_embeds_every_row_and_can_be_resumed(run: Callable[..., Outcome], database: str) -> None:
    add_turns(database, [f"turn number {number}" for number in range(25)])
    first = run("backfill", "--limit", "10", "--batch", "4", "--json")
    assert first.code == 0
    assert first.document == {
        "embedded": 10, "left": 15, "worded": 25, "left_words": 0, "refused": [], "interrupted": False,
    }  # fmt: skip
    assert unembedded(database) == 15
    assert run("backfill", "--json").document["embedded"] == 15
    assert unembedded(database) == 0
    assert "nothing to do" in run("backfill").out
    assert value(database, "SELECT count(*) FROM conversations WHERE search IS NULL") == 0
    assert value(database, "SELECT count(*) FROM hermes_pgvector_leases") == 0


def test_backfill_embeds_the_sentences_of_stored_messages(run: Callable[..., Outcome], database: str) -> None:
    two = "The new door code of the office is 4471. Could you also draft the mail to the landlord?"
    add_turns(database, [f"{two} Reference {number}." for number in range(70)], session="a")
    add_turns(database, ["Where does the kelp grow?", f"{SPOILT} is the harbour of the old town. {two}"], session="b")
    run("backfill")
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM conversation_pieces")
        # The whole of a message may be embedded where one of its sentences is refused.
        connection.execute(
            "UPDATE conversations SET embedding = (SELECT embedding FROM conversations ORDER BY id LIMIT 1)"
        )
    assert "embedded the sentences of 5 messages\n" in run("backfill", "--sentences", "--limit", "5").out
    outcome = run("backfill", "--sentences")
    assert outcome.code == 1
    assert "embedded the sentences of 65 messages; 1 message refused by the embedder" in outcome.out
    assert value(database, "SELECT count(*) FROM conversation_pieces") == 140
    assert run("backfill", "--sentences", "--json").document["divided"] == 0


def test_backfill_prints_refused_rows_and_embeds_the_others(run: Callable[..., Outcome], database: str) -> None:
    for number in range(20):
        # A session each: a turn is embedded together with the one before it.
        add_turns(database, [f"{SPOILT if number in (3, 17) else 'horse'} number {number}"], session=f"s{number}")
    outcome = run("backfill", "--json")
    assert outcome.code == 1
    assert outcome.document["embedded"] == 18
    assert outcome.document["left"] == 2
    assert len(outcome.document["refused"]) == 2
    assert (
        value(database, f"SELECT count(*) FROM conversations WHERE embedding IS NULL AND content LIKE '{SPOILT}%'") == 2
    )


def test_backfill_stops_when_the_embedder_fails_and_keeps_finished_batches(
    run: Callable[..., Outcome], database: str, endpoint: PickyEndpoint
) -> None:
    add_turns(database, [f"turn number {number}" for number in range(9)])
    endpoint.texts_max = 6
    outcome = run("backfill", "--batch", "2")
    assert outcome.code == 1
    left = unembedded(database)
    assert 0 < left < 9, "two requests run at a time, so the second may be stored or not"
    assert f"{9 - left} rows done, run the command again" in outcome.err
    assert value(database, "SELECT count(*) FROM hermes_pgvector_leases") == 0
    endpoint.status, endpoint.texts_max = 200, 1 << 30
    assert run("backfill").code == 0
    assert unembedded(database) == 0


def test_backfill_waits_for_an_endpoint_that_takes_no_more_requests_for_now(
    run: Callable[..., Outcome], database: str, endpoint: PickyEndpoint
) -> None:
    add_turns(database, [f"turn number {number}" for number in range(9)])
    endpoint.limited_at, endpoint.retry_after_s = 3, 2
    outcome = run("backfill", "--batch", "2")
    assert outcome.code == 0
    assert unembedded(database) == 0
    assert re.search(r"^waiting: \S+ answered 429: it takes no more requests for now$", outcome.err, re.MULTILINE)


def test_backfill_ends_when_an_endpoint_takes_no_requests_for_too_long(
    run: Callable[..., Outcome], database: str, endpoint: PickyEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_memory_pgvector.admin.rate_limit.WAIT_S_MAX", 1.0)
    add_turns(database, ["turn"])
    endpoint.limited_at, endpoint.retry_after_s = 2, 1_000
    outcome = run("backfill")
    assert outcome.code == 1
    assert "0 rows done, run the command again" in outcome.err


def test_backfill_puts_no_vectors_of_another_model_into_a_database(run: Callable[..., Outcome], database: str) -> None:
    add_turns(database, ["a turn"])
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO hermes_pgvector_settings (name, value) VALUES ('embedding_model', 'other')")
    outcome = run("backfill")
    assert outcome.code == 1
    assert "other" in outcome.err
    assert unembedded(database) == 1


def test_backfill_waits_for_an_endpoint_that_is_too_slow_for_agents(
    run: Callable[..., Outcome], database: str, endpoint: PickyEndpoint
) -> None:
    add_turns(database, ["a turn"])
    endpoint.delay_s = PROBE_S_MIN + 0.2
    outcome = run("backfill")
    assert outcome.code == 0, outcome.err
    assert unembedded(database) == 0
    assert value(database, "SELECT value FROM hermes_pgvector_settings WHERE name = 'embedding_model'") == "words"


def test_backfill_starts_beside_an_agent_that_makes_no_progress(run: Callable[..., Outcome], database: str) -> None:
    add_turns(database, ["a turn"])
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO hermes_pgvector_leases VALUES ('heal', 'somebody', now() + interval '10 minutes')"
        )
    outcome = run("backfill", "--wait", "0")
    assert outcome.code == 0
    assert "starting beside it" in outcome.err
    assert unembedded(database) == 0
    assert value(database, "SELECT holder FROM hermes_pgvector_leases") == "somebody"


def test_backfill_waits_for_a_lease_that_runs_out(run: Callable[..., Outcome], database: str) -> None:
    add_turns(database, ["a turn"])
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO hermes_pgvector_leases VALUES ('heal', 'somebody', now() + interval '1 second')"
        )
    outcome = run("backfill", "--wait", "100")
    assert outcome.code == 0
    assert "watching" in outcome.err
    assert unembedded(database) == 0


def test_an_interrupted_backfill_keeps_finished_batches_and_releases_its_lease(
    tmp_path: Path, database: str, endpoint: PickyEndpoint
) -> None:
    add_turns(database, [f"turn number {number}" for number in range(200)])
    endpoint.delay_s = 0.2
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "hermes_memory_pgvector", "backfill", "--batch", "2", "--home", str(tmp_path)],
        env={
            "PATH": os.environ["PATH"], "PYTHONPATH": IMPORTED_FROM, "HERMES_PGVECTOR_DSN": database,
            "HERMES_PGVECTOR_EMBED_URL": endpoint.url, "HERMES_PGVECTOR_EMBED_MODEL": "words",
        },
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/",
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while unembedded(database) > 196 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    left = unembedded(database)
    assert 0 < left <= 196
    assert f"{left} rows left" in out
    assert value(database, "SELECT count(*) FROM hermes_pgvector_leases") == 0


# server


@pytest.mark.skipif(not available(), reason="the extra [embedded] is not installed")
@pytest.mark.parametrize("command", [["history"], ["undo", "1"], ["backfill"], ["tune"], ["search", "x"]])
def test_a_command_creates_no_embedded_server_in_a_mistyped_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DATA_DIR", str(tmp_path / "server"))
    outcome = hermes_pgvector("--home", str(tmp_path / "mistyped"), *command)
    assert outcome.code == 1
    assert "no memory yet" in outcome.err
    assert "--home" in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not available(), reason="the extra [embedded] is not installed")
def test_a_home_whose_database_is_gone_is_not_told_to_make_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a disk that is not mounted."""
    monkeypatch.setenv("HERMES_PGVECTOR_DATA_DIR", str(tmp_path / "disk" / "server"))
    (tmp_path / "home" / "pgvector").mkdir(parents=True)
    (tmp_path / "home" / "pgvector" / "embedded_database").write_text("7")
    gone = f"the database that this home used before is not in {tmp_path}/disk/server/data any more"
    for command, code in (("status", 1), ("history", 1), ("search x", 1), ("doctor", 1), ("watch --skip-host", 3)):
        outcome = hermes_pgvector("--home", str(tmp_path / "home"), *command.split())
        shown = " ".join(outcome.shown.split())
        assert (outcome.code, shown.count(gone), shown.count("mount its disk")) == (code, 1, 1), shown
        assert "server start" not in shown
    assert "✗ database: " in hermes_pgvector("--home", str(tmp_path / "home"), "doctor").out
    assert not (tmp_path / "disk").exists()


@pytest.mark.skipif(not available(), reason="the extra [embedded] is not installed")
def test_an_embedded_server_is_started_migrated_shown_and_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERMES_PGVECTOR_DSN", raising=False)
    with tempfile.TemporaryDirectory(prefix="hpg", dir="/tmp") as folder:
        data = Path(folder) / "server"
        monkeypatch.setenv("HERMES_PGVECTOR_DATA_DIR", str(data))
        Path(folder).chmod(0o755)

        def run(*arguments: str) -> Outcome:
            return hermes_pgvector("--home", f"{folder}/home", "--json", *arguments)

        try:
            assert run("server", "status").code == 1
            assert run("status").code == 1
            assert not data.exists()
            assert run("server", "start").document["started"] is True
            assert run("server", "start").document["started"] is False
            assert run("migrate").document["applied"] == []
            with psycopg.connect(EmbeddedServer(f"{folder}/home", str(data)).dsn) as connection:
                connection.execute("DELETE FROM hermes_pgvector_migrations WHERE version = 5")
            checks = {check["name"]: check["remedy"] for check in run("doctor").document["checks"]}
            assert checks["schema"] == "hermes-pgvector server start"
            with psycopg.connect(EmbeddedServer(f"{folder}/home", str(data)).dsn) as connection:
                connection.execute("INSERT INTO hermes_pgvector_migrations VALUES (5, '005_words')")
            shown = run("status")
            assert shown.code == 0
            assert shown.document["database"]["embedded"] is True
            assert run("server", "status").document["running"] is True
            assert run("server", "stop").document["stopped"] is True
            assert run("server", "stop").document["stopped"] is False
        finally:
            EmbeddedServer(f"{folder}/home", str(data)).stop(mode="immediate")


# tune


def test_tune_proposes_and_builds_indexes_for_large_themes(
    run: Callable[..., Outcome], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO conversations (agent_identity, role, content, embedding) "
            "SELECT CASE WHEN n % 5 < 2 THEN 'large' ELSE 'other ' || n % 5 END, 'user', 'x', "
            "(SELECT array_agg(random()) FROM generate_series(1, 384) WHERE n > 0)::vector::halfvec "
            "FROM generate_series(1, 3000) AS n"
        )
    assert "nothing to do" in run("tune").out
    proposed = run("tune", "--rows-min", "1000", "--json").document
    (index,) = proposed["indexes"]
    assert (index["theme"], index["rows"], index["step"], proposed["applied"]) == ("large", 1200, "build", False)
    told = run("tune", "--rows-min", "1000", "--dsn", database).err
    assert told.endswith(
        "hermes-pgvector tune --apply --rows-min 1000 --indexes-max 24 --dsn postgresql://ADMIN@HOST/DATABASE\n"
    )
    assert run("tune", "--rows-min", "1000", "--apply").code == 0
    assert value(database, f"SELECT count(*) FROM pg_indexes WHERE indexname = '{index['name']}'") == 1
    again = run("tune", "--rows-min", "1000", "--apply", "--json").document
    assert [(index["step"], index["bytes"] > 0) for index in again["indexes"]] == [("keep", True)]

    monkeypatch.setenv("HERMES_PGVECTOR_EXACT_ROWS_MAX", "1000")
    shown = run("search", "x", "--theme", "large", "--kind", "turns", "--explain")
    assert "plan: theme's own index" in shown.out
    assert run("tune", "--apply", "--indexes-max", "0").code == 0
    assert value(database, f"SELECT count(*) FROM pg_indexes WHERE indexname = '{index['name']}'") == 0


def test_tune_needs_a_role_that_may_create_indexes(
    run: Callable[..., Outcome], database: str, make_role: Callable[[], str]
) -> None:
    role = make_role()
    assert run("migrate", "--runtime-role", role).code == 0
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO conversations (agent_identity, role, content, embedding) "
            "SELECT 'theme ' || n % 3, 'user', 'x', array_fill(1, array[384])::vector::halfvec "
            "FROM generate_series(1, 3000) AS n"
        )
    outcome = run("tune", "--dsn", make_conninfo(database, user=role), "--rows-min", "1000", "--apply")
    assert outcome.code == 1
    assert "must be owner" in outcome.err
    assert "--dsn postgresql://ADMIN@HOST/DATABASE" in outcome.err
