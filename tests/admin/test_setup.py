"""The set-up on real databases: questions, choices, what it saves, and its test of the result."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from loopback import Endpoint
from past_sessions import Record, turn
from psycopg import sql
from psycopg.conninfo import make_conninfo

from hermes_memory_pgvector.admin import panel
from hermes_memory_pgvector.admin.setup import wizard
from hermes_memory_pgvector.errors import DatabaseUnavailable, SettingsError
from hermes_memory_pgvector.settings import load
from hermes_memory_pgvector.store.embedded.programs import program
from hermes_memory_pgvector.store.embedded.server import EmbeddedServer, available
from hermes_memory_pgvector.store.probe import probe
from hermes_memory_pgvector.store.schema.migrations import migration_files
from hermes_memory_pgvector.store.schema.preflight import PasswordWanted
from hermes_memory_pgvector.store.schema.verification import TABLES

DEAD_DSN = "postgresql://somebody:hunter2@127.0.0.1:9/nowhere"
MODEL = "scripted-embedder"

needs_wheel = pytest.mark.skipif(not available(), reason="the extra [embedded] is not installed")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home without anything in it, on a machine without a host and without an Ollama."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    before = dict(os.environ)
    yield tmp_path
    # The command line puts the lines of `.env` into the environment, as hosts do.
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def outdoors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for an embedded server that every account can reach; the server is stopped with it."""
    folder = Path(tempfile.mkdtemp(prefix="hpg", dir="/tmp"))
    folder.chmod(0o755)
    monkeypatch.setenv("HERMES_PGVECTOR_DATA_DIR", str(folder / "server"))
    yield folder
    with contextlib.suppress(DatabaseUnavailable):
        EmbeddedServer(folder, str(folder / "server")).stop(mode="immediate")
    shutil.rmtree(folder)


def setup(home: Path, *arguments: str, answers: str = "") -> Outcome:
    """Run the set-up in this process, with these lines typed into a pipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO(answers))
        return hermes_pgvector("setup", "--home", str(home), *arguments)


def lines(*answers: str) -> str:
    return "".join(f"{answer}\n" for answer in answers)


def elsewhere(endpoint: Endpoint) -> tuple[str, ...]:
    """The answers that choose this endpoint."""
    return ("3", endpoint.url, MODEL, "-")


def rows(dsn: str) -> dict[str, int]:
    """How many rows each table has, without what the database says of itself and who looks after it."""
    with psycopg.connect(dsn) as connection:
        counted = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}  # type: ignore[index]
    return {name: count for name, count in counted.items() if count and not name.startswith("hermes_pgvector_")}


def as_role(dsn: str, role: str, **more: str) -> str:
    return make_conninfo(dsn, user=role, **more)


def dimensions_in(dsn: str) -> int:
    found = probe(dsn, 3)
    assert found.stored is not None
    return found.stored.dimensions


# Without questions


def test_a_database_and_an_endpoint_are_tried_saved_and_tested(home: Path, database: str, endpoint: Endpoint) -> None:
    done = setup(home, "--dsn", database, "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes", "--json")
    assert done.code == 0, done.shown
    document = json.loads(done.out)
    assert (document["recalled"], document["problem"], document["applied"]) == ("meaning", "", [])
    settings = load(home, {})
    assert settings.dsn.get_secret_value() == database
    assert (settings.embed_url, settings.embed_model) == (endpoint.url, MODEL)
    assert (home / ".env").stat().st_mode & 0o777 == 0o600


def test_the_round_trip_leaves_no_trace(home: Path, database: str, endpoint: Endpoint) -> None:
    done = setup(home, "--dsn", database, "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes")
    assert done.code == 0, done.shown
    assert rows(database) == {}
    assert sum(path.stat().st_size for path in (home / "pgvector" / "spool").glob("*.spool")) == 0
    assert not (home / "memories").exists()


def test_a_bare_database_gets_tables_for_the_vectors_of_the_embedder(
    home: Path, empty_database: str, endpoint: Endpoint
) -> None:
    endpoint.dimensions = 512
    done = setup(home, "--dsn", empty_database, "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes")
    assert done.code == 0, done.shown
    assert "recalled by meaning" in done.err
    assert dimensions_in(empty_database) == 512


def test_an_administrator_creates_the_tables_for_a_role_that_may_not(
    home: Path, empty_database: str, role: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = as_role(empty_database, role)
    refused = setup(home, "--dsn", own, "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes")
    assert refused.code == 1
    assert "HERMES_PGVECTOR_ADMIN_DSN" in refused.err
    monkeypatch.setenv("HERMES_PGVECTOR_ADMIN_DSN", empty_database)
    done = setup(home, "--dsn", own, "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes")
    try:
        assert done.code == 0, done.shown
        found = probe(own, 3)
        assert found.ready
        assert not found.server_info.owner
    finally:
        with psycopg.connect(empty_database, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))


@pytest.mark.parametrize("right", ["select", "no"])
def test_an_administrator_lets_a_role_in_that_may_only_read_the_tables_or_nothing(
    home: Path, database: str, role: str, right: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        if right == "select":
            connection.execute(f"grant select on all tables in schema public to {role}".encode())
        given = ("--dsn", as_role(database, role), "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes")
        refused = setup(home, *given)
        assert refused.code == 1
        assert f"hermes-pgvector: role '{role}' lacks " in refused.err
        assert f" --runtime-role {role}; or set HERMES_PGVECTOR_ADMIN_DSN for this run" in refused.err
        monkeypatch.setenv("HERMES_PGVECTOR_ADMIN_DSN", database)
        done = setup(home, *given)
        connection.execute(f"drop owned by {role}".encode())
    assert done.code == 0, done.shown


def test_an_embedder_that_does_not_fit_is_refused_and_nothing_is_saved(
    home: Path, database: str, endpoint: Endpoint
) -> None:
    endpoint.dimensions = 512
    done = setup(home, "--dsn", database, "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes")
    assert done.code == 1
    assert "vectors of 512 dimensions, the database has no vectors yet, and is made for vectors of 384" in done.err
    assert list(home.iterdir()) == []


@not_on_citus.reembed
def test_a_database_without_vectors_is_made_ready_for_another_model_by_the_command_that_set_up_names(
    home: Path, make_database: Callable[..., str], endpoint: Endpoint
) -> None:
    database = make_database(dimensions=768)
    given = ("--dsn", database, "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes")
    refused = setup(home, *given)
    assert refused.code == 1
    named = refused.err.partition("to use this model: hermes-pgvector ")[2].splitlines()[0]
    command = shlex.split(named.replace("postgresql://ADMIN@HOST/DATABASE", shlex.quote(database)))
    done = hermes_pgvector(*command, "--yes")
    assert done.code == 0, done.shown
    assert dimensions_in(database) == endpoint.dimensions
    assert setup(home, *given).code == 0


def test_an_unreachable_database_is_named_without_its_password_and_nothing_is_saved(home: Path) -> None:
    done = setup(home, "--dsn", DEAD_DSN, "--yes")
    assert done.code == 1
    assert "cannot be reached" in done.err
    assert "hunter2" not in done.shown
    assert list(home.iterdir()) == []


def test_an_unreachable_embedder_is_named_and_nothing_is_saved(home: Path, database: str) -> None:
    done = setup(home, "--dsn", database, "--embed-url", "http://127.0.0.1:9", "--yes")
    assert done.code == 1
    assert "127.0.0.1:9 cannot be reached" in done.err
    assert list(home.iterdir()) == []


def test_another_plugin_in_the_place_of_a_link_is_named_before_all_else(home: Path, empty_database: str) -> None:
    (home / "hooks" / "pgvector").mkdir(parents=True)
    for done in (setup(home, "--dsn", empty_database, "--yes"), setup(home, answers=lines("2", empty_database))):
        assert (done.code, "hooks/pgvector is not a link to this package" in done.err) == (2, True)
        assert "Where should" not in done.err
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("SELECT to_regclass('hermes_pgvector_migrations')").fetchone() == (None,)
    assert list(home.iterdir()) == [home / "hooks"]


def test_settings_that_are_not_given_are_kept(home: Path, database: str, endpoint: Endpoint) -> None:
    assert setup(home, "--dsn", database, "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes").code == 0
    before = (home / ".env").read_text(), (home / "pgvector" / "config.json").read_text()
    assert setup(home, "--yes").code == 0
    assert ((home / ".env").read_text(), (home / "pgvector" / "config.json").read_text()) == before


def test_a_variable_that_would_take_precedence_is_named_and_nothing_is_saved(
    home: Path, database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_MODEL", "another")
    done = setup(home, "--dsn", database, "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes")
    assert done.code == 1
    assert "HERMES_PGVECTOR_EMBED_MODEL" in done.err
    assert not (home / ".env").exists()


def test_json_without_yes_is_wrong_usage(home: Path) -> None:
    assert setup(home, "--json").code == 2


# With questions


def test_a_wrong_address_is_asked_for_again(home: Path, database: str, endpoint: Endpoint) -> None:
    done = setup(home, answers=lines("2", DEAD_DSN, "not an address", database, *elsewhere(endpoint)))
    assert done.code == 0, done.shown
    assert "cannot be reached" in done.err
    assert "is not a connection string" in done.err
    assert "recalled by meaning" in done.err
    assert "hunter2" not in done.shown


@pytest.mark.parametrize("user", ["owner", "role"])
def test_tables_of_another_project_are_named_before_anything_is_asked(
    home: Path, empty_database: str, role: str, user: str
) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE conversations (id int, title text)")
    address = as_role(empty_database, role) if user == "role" else empty_database
    done = setup(home, answers=lines("2", address))
    assert done.code == 130
    assert "another project with names of the memory: conversations" in done.err
    for asked in ("Create them?", "administrator", "Which model"):
        assert asked not in done.err
    refused = setup(home, "--yes", "--dsn", address)
    assert (refused.code, "memory: conversations" in refused.err, "ADMIN_DSN" in refused.err) == (1, True, False)
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("SELECT to_regclass('hermes_pgvector_migrations')").fetchone() == (None,)


def test_a_database_of_a_newer_release_is_refused_and_nothing_is_made_or_saved(home: Path, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE hermes_pgvector_settings SET value = '900' WHERE name = 'oldest_client'")
    refused = setup(home, "--yes", "--dsn", database)
    assert (refused.code, "tables are created" in refused.err) == (1, False)
    asked = setup(home, answers=lines("2", database))
    assert (asked.code, "Create them?" in asked.err) == (130, False)
    for done in (refused, asked):
        assert "upgrade this release" in done.err
        assert "schema 900 or a newer one" in done.err
    assert list(home.iterdir()) == []


def test_the_end_of_the_input_leaves_everything_as_it_was(home: Path, database: str) -> None:
    for answers in ("", lines("2"), lines("2", database), lines("2", database, "3")):
        done = setup(home, answers=answers)
        assert done.code == 130
        assert "Cancelled. Nothing was saved" in done.err
        assert list(home.iterdir()) == []


def test_a_password_is_asked_for_when_the_server_wants_one(
    home: Path, database: str, strict: str, endpoint: Endpoint
) -> None:
    own = as_role(database, strict)
    with pytest.raises(PasswordWanted):
        probe(own, 3)
    with pytest.raises(PasswordWanted):
        probe(as_role(database, strict, password="wrong"), 3)
    # First a wrong password, then the right one, then the administrator who lets the role in.
    done = setup(home, answers=lines("2", own, "wrong", own, "right", database, *elsewhere(endpoint)))
    try:
        assert done.code == 0, done.shown
        assert "right" not in done.shown.replace("The right", "")
        assert "no password supplied" not in done.err
        assert "password=right" in load(home, {}).dsn.get_secret_value()
        assert probe(load(home, {}).dsn.get_secret_value(), 3).ready
    finally:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(strict)))


def test_a_wrong_address_of_an_endpoint_is_told_before_the_other_questions(
    home: Path, database: str, endpoint: Endpoint
) -> None:
    done = setup(home, answers=lines("2", database, "3", "localhost:11434", *elsewhere(endpoint)))
    assert done.code == 0, done.shown
    assert done.err.count("✗ ") == done.err.count("The name of the model") == 1


def test_tables_can_be_left_to_an_administrator(home: Path, empty_database: str, role: str, endpoint: Endpoint) -> None:
    done = setup(home, answers=lines("2", as_role(empty_database, role), "", *elsewhere(endpoint)))
    assert done.code == 0, done.shown
    assert f"--runtime-role {role}" in done.err
    assert "recalled" not in done.err
    assert load(home, {}).dsn.get_secret_value()
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("SELECT to_regclass('memory_entries')").fetchone() == (None,)


def test_who_does_not_want_the_tables_now_is_told_what_to_run_later(
    home: Path, empty_database: str, endpoint: Endpoint
) -> None:
    done = setup(home, answers=lines("2", empty_database, "n", *elsewhere(endpoint)))
    assert done.code == 0, done.shown
    assert "until somebody has run: hermes-pgvector migrate\n" in done.err
    assert hermes_pgvector("migrate", "--home", str(home)).code == 0
    assert probe(empty_database, 3).ready


def test_an_embedder_that_does_not_fit_can_be_taken_for_word_search(
    home: Path, database: str, endpoint: Endpoint
) -> None:
    endpoint.dimensions = 512
    done = setup(home, answers=lines("2", database, *elsewhere(endpoint), "y"))
    assert done.code == 0, done.shown
    assert "recalled by words" in done.err
    assert rows(database) == {}


def test_past_sessions_of_the_host_are_stored_when_the_user_says_so(
    home: Path, database: str, endpoint: Endpoint
) -> None:
    chosen, record = ("2", database, *elsewhere(endpoint)), Record(home)
    for session in ("s1", "s2"):
        record.say(session, int(session[1]))
    record.say("job", 3, source="cron")
    # In a database of one's own it is asked for, because others may read it; the end of the input is no answer.
    for answer in ((), ("",), ("n",)):
        done = setup(home, answers=lines(*chosen, *answer))
        assert done.code == 0, done.shown
        assert "2 sessions from before" in done.err
        assert "hermes-pgvector import --from state-db " in done.err.split("Next:")[1]
        assert rows(database) == {}
    done = setup(home, answers=lines(*chosen, "y"))
    assert (done.code, rows(database)["conversations"]) == (0, 4)
    assert "2 turns, 2 new\n1 session left out: jobs of the host\nfound by their words at once; " in done.err
    with psycopg.connect(database) as connection:
        said = connection.execute("select content from conversations where role = 'user' order by ts").fetchall()
    assert said == [(turn(number)[0],) for number in (1, 2)]
    # They are there now: nothing is asked.
    again = setup(home, answers=lines(*chosen))
    assert (again.code, "from before" in again.shown) == (0, False)


def test_without_questions_past_sessions_are_counted_and_left_alone(
    home: Path, database: str, endpoint: Endpoint
) -> None:
    Record(home).say("s1", 1)
    given = ("--dsn", database, "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes", "--json")
    done = setup(home, *given)
    assert (done.code, done.document["past_sessions"]) == (0, 1)
    assert rows(database) == {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HERMES_PGVECTOR_SYNC_TURNS", "false")
        assert setup(home, *given).document["past_sessions"] == 0


def test_past_sessions_that_cannot_be_counted_leave_the_settings_saved(
    home: Path, database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "state.db").write_bytes(b"no database" * 1000)
    given = ("--dsn", database, "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes")
    done = setup(home, *given)
    assert (done.code, "✗ the past sessions are not stored: state.db of the host cannot be" in done.err) == (0, True)

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(wizard, "past_sessions", interrupted)
    done = setup(home, *given)
    assert (done.code, "The past sessions are not stored, or not all; the settings are saved." in done.err) == (0, True)


def test_a_second_setup_offers_the_endpoint_and_the_model_in_use(home: Path, database: str, endpoint: Endpoint) -> None:
    assert setup(home, answers=lines("2", database, *elsewhere(endpoint))).code == 0
    before = load(home)
    done = setup(home, answers=lines("2", database, "3", "", "", ""))
    assert done.code == 0, done.shown
    assert MODEL in done.shown
    assert load(home) == before


def test_a_key_is_asked_for_and_kept_in_the_env_file(home: Path, database: str, endpoint: Endpoint) -> None:
    answers = lines("2", database, "3", endpoint.url, MODEL, "TESTS_EMBED_KEY", "sesame")
    done = setup(home, answers=answers)
    assert done.code == 0, done.shown
    assert "sesame" not in done.shown
    assert "TESTS_EMBED_KEY=sesame\n" in (home / ".env").read_text()
    assert "sesame" not in (home / "pgvector" / "config.json").read_text()


# The embedded server


@needs_wheel
def test_the_embedded_server_is_made_used_dumped_and_restored(
    home: Path, outdoors: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = setup(home, "--embedded", "--embed-url", endpoint.url, "--embed-model", MODEL, "--yes")
    assert done.code == 0, done.shown
    assert "recalled by meaning" in done.err
    assert load(home, {}).dsn.get_secret_value() == ""
    server = EmbeddedServer(home, str(outdoors / "server"))
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO memory_entries (target, content) VALUES ('memory', 'kept in a dump')")
    server.stop()

    (folder,) = panel.backups(home)
    assert not server.status().running, "a server that was stopped is stopped again"
    dump = Path(folder) / "memory.dump"
    assert dump.stat().st_mode & 0o777 == 0o600
    made = dump.stat().st_mtime_ns
    assert panel.backups(home) == [folder]
    assert dump.stat().st_mtime_ns == made, "a fresh dump is not made again"

    another = EmbeddedServer(home, str(outdoors / "another"))
    another.ensure_running()
    try:
        subprocess.run(
            [program("pg_restore"), "--clean", "--if-exists", "--no-owner", "--dbname", another.dsn, dump],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        with psycopg.connect(another.dsn) as connection:
            assert connection.execute("SELECT content FROM memory_entries").fetchall() == [("kept in a dump",)]
    finally:
        another.stop(mode="immediate")


@needs_wheel
def test_an_interrupted_setup_stops_a_server_that_it_started(home: Path, outdoors: Path, endpoint: Endpoint) -> None:
    server = EmbeddedServer(home, str(outdoors / "server"))
    server.ensure_running()
    assert setup(home, answers=lines("1")).code == 130
    assert server.status().running, "it ran before"
    server.stop()
    assert setup(home, answers=lines("1")).code == 130
    assert not server.status().running
    assert list(home.iterdir()) == []


@needs_wheel
def test_a_failed_dump_leaves_the_older_one(home: Path, outdoors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_memory_pgvector.store.embedded import dump

    server = EmbeddedServer(home, str(outdoors / "server"))
    server.ensure_running()
    kept = dump.fresh_dump(server, home / "backups", age_s_max=0, timeout_s=60)
    assert kept is not None
    before = kept.read_bytes()
    with pytest.raises(DatabaseUnavailable, match="did not finish"):
        dump.fresh_dump(server, home / "backups", age_s_max=0, timeout_s=0.001)
    assert kept.read_bytes() == before
    assert list(kept.parent.iterdir()) == [kept]


@needs_wheel
def test_the_dump_finds_the_libraries_of_this_machine(
    home: Path, outdoors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_memory_pgvector.store.embedded import dump

    server = EmbeddedServer(home, str(outdoors / "server"))
    server.ensure_running()
    teller = outdoors / "pg_dump"
    teller.write_text('#!/bin/sh\necho "looks in $LD_LIBRARY_PATH, has ${SECRET:-no secret}" >&2\nexit 1\n')
    teller.chmod(0o755)
    monkeypatch.setattr(dump, "program", lambda _: teller)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    monkeypatch.setenv("SECRET", "hunter2")
    with pytest.raises(DatabaseUnavailable, match="looks in /opt/lib, has no secret"):
        dump.fresh_dump(server, home / "backups", age_s_max=0, timeout_s=60)


# A first look


def test_a_probe_of_a_bare_database_names_the_missing_migrations(empty_database: str) -> None:
    found = probe(empty_database, 3)
    assert found.stored is None
    assert found.lacking == tuple(file.name for file in migration_files())
    assert found.obstacle == ""
    assert not found.ready


def test_a_probe_changes_nothing(empty_database: str) -> None:
    probe(empty_database, 3)
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'hermes%'").fetchone() == (0,)


def test_a_probe_names_the_privileges_that_a_role_lacks(database: str, role: str) -> None:
    found = probe(as_role(database, role), 3)
    assert found.stored is None
    assert found.lacking == ()
    assert f"role '{role}' lacks delete on " in found.obstacle
    assert any(line.startswith("select on") for line in found.server_info.missing)


def test_a_string_that_is_not_a_dsn_is_not_repeated() -> None:
    with pytest.raises(SettingsError) as raised:
        probe("hunter2 is not one", 3)
    assert "hunter2" not in str(raised.value)
    assert "the address is not a connection string" in str(raised.value)
