"""`watch` on records of a host that were made by hand: what it misses, what it does not miss, and what it prints."""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from loopback import Endpoint
from psycopg import sql
from psycopg.conninfo import make_conninfo

from hermes_memory_pgvector.admin.link import python_of
from hermes_memory_pgvector.admin.watch import metrics
from hermes_memory_pgvector.admin.watch.finding import REASONS
from hermes_memory_pgvector.files import Marks, mark_name
from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.outbox.spool import Spool

LONG = "Tell me about the history of bridge number {} over the river Aare"
ANSWER = "Bridge number {} is old, and there is not much to tell."

_TABLES = """
    create table sessions (id text primary key, source text, parent_session_id text, model_config text,
      end_reason text, api_call_count integer default 1,
      chat_type text, chat_id text, user_id text, origin_json text, profile_name text);
    create table messages (id integer primary key, session_id text, role text, content text, tool_calls text,
      timestamp real, active integer not null default 1, compacted integer not null default 0, display_kind text)"""


class Record:
    """A host's `state.db`."""

    def __init__(self, home: Path) -> None:
        self.path = home / "state.db"
        with closing(sqlite3.connect(self.path)) as database:
            database.executescript(_TABLES)

    def __call__(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute(statement, values)

    def say(self, session: str, *turns: tuple[str, str], source: str = "cli", age_s: float = 3600, **more: str) -> None:
        with closing(sqlite3.connect(self.path)) as database:
            database.execute(
                "insert or ignore into sessions (id, source, parent_session_id, model_config) values (?, ?, '', ?)",
                (session, source, json.dumps(more)),
            )
            for user, answer in turns:
                for role, text in (("user", user), ("assistant", answer)):
                    values = (session, role, text, time.time() - age_s)
                    database.execute(
                        "insert into messages (session_id, role, content, timestamp) values (?, ?, ?, ?)", values
                    )
            database.commit()


def several(count: int) -> list[tuple[str, str]]:
    return [(LONG.format(n), ANSWER.format(n)) for n in range(count)]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    (tmp_path / "config.yaml").write_text("memory: {provider: pgvector}\n")
    return Record(tmp_path)


@pytest.fixture
def watch(tmp_path: Path, database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run `watch` for the home with the record; nothing of a host is installed here."""
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_URL", endpoint.url)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_MODEL", "words")

    def run(*arguments: str) -> Outcome:
        return hermes_pgvector("--home", str(tmp_path), "watch", "--skip-host", *arguments)

    return run


def expected(watch: Callable[..., Outcome], *arguments: str) -> int:
    return int(watch("--json", *arguments).document["turns_expected"])


def test_turns_that_are_nowhere_are_missed_and_one_that_is_stored_or_waits_is_enough(
    watch: Callable[..., Outcome], record: Record, database: str, tmp_path: Path
) -> None:
    record.say("one", *several(4))
    missed = watch()
    assert missed.code == 3
    assert "needs attention: turns" in missed.out
    assert "of the newest 4 turns of the host none is stored or waits" in missed.err
    waiting = Spool(tmp_path / "pgvector" / "spool", bytes_max=1 << 20, window_max=10)
    assert waiting.append(TurnTaken(user=LONG.format(3), assistant=ANSWER.format(3), theme="t", session_id="one"))
    assert watch().code == 0
    waiting.close()
    for folder in (tmp_path / "pgvector" / "spool").iterdir():
        (folder / "lock").unlink()
        folder.rename(tmp_path / folder.name)
    assert watch().code == 3
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO conversations (agent_identity, session_id, role, content) VALUES ('t', 'one', 'user', %s)",
            [LONG.format(1)],
        )
    assert watch().code == 0


def test_what_is_deliberately_not_stored_is_not_expected(
    watch: Callable[..., Outcome], record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.say("short", ("ok", "Fine."), ("thanks!", "You are welcome."))
    record.say("job", *several(3), source="cron")
    record.say("child", *several(3), _delegate_from="one")
    record.say("old", *several(3), age_s=90_000)
    record.say("just now", *several(3), age_s=1)
    record.say("secret", ("off the record", "Nothing is stored."), *several(3))
    record.say("unanswered", (LONG.format(9), ""))
    record.say("of another profile", *several(3))
    record("update sessions set profile_name = 'work' where id = 'of another profile'")
    (record.path.parent / "profiles" / "work").mkdir(parents=True)
    assert expected(watch) == 0
    record.say("secret", ("on the record", "It is stored again."), *several(2))
    assert expected(watch) == 2
    assert expected(watch, "--turns", "1") == 1
    assert expected(watch, "--settle", "0") == 5
    assert expected(watch, "--hours", "48") == 5
    for setting, value in (("OFF_RECORD", "true"), ("SYNC_TURNS", "false"), ("TURN_MIN_CHARS", "10000")):
        with monkeypatch.context() as context:
            context.setenv(f"HERMES_PGVECTOR_{setting}", value)
            assert expected(watch) == 0, setting


def test_turns_that_rules_keep_out_are_not_expected(
    watch: Callable[..., Outcome], record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.say("terminal", *several(1))
    for session, chat_type, user, origin in (
        ("owner", "dm", "1", {}),
        ("other", "dm", "2", {"user_id_alt": "3"}),
        ("room", "group", "1", {}),
        ("unknown", None, None, []),
    ):
        record.say(session, *several(2), source="telegram")
        record(
            "update sessions set chat_type = ?, chat_id = '-7', user_id = ?, origin_json = ? where id = ?",
            chat_type, user, json.dumps(origin), session,
        )  # fmt: skip
    monkeypatch.setenv("HERMES_PGVECTOR_OWNER_ACCOUNTS", '["telegram:1"]')
    for keep, count in (
        ("all", 9),
        ("asked", 0),
        # The record does not say who wrote in a room.
        ("owner", 3),
        ('[{"author": "3", "action": "none"}]', 3),
        ('[{"room": "-7", "action": "entries"}]', 1),
        ('[{"chat_type": "dm", "action": "none"}]', 3),
        ('[{"pattern": "number 0", "action": "none"}]', 3),
        ('[{"role": "assistant", "action": "none"}]', 7),
    ):
        monkeypatch.setenv("HERMES_PGVECTOR_KEEP", keep)
        assert expected(watch) == count, keep
    monkeypatch.setenv("HERMES_PGVECTOR_KEEP", "asked")
    assert watch().code == 0


def test_turns_that_the_host_began_are_not_expected(watch: Callable[..., Outcome], record: Record) -> None:
    record.say("one", (f"[Background process 7 finished with exit code 0~ {LONG}", ANSWER), *several(2))
    record("update messages set display_kind = 'hidden' where content = ?", LONG.format(1))
    assert expected(watch) == 1


def test_a_session_off_the_record_in_the_theme_of_a_project_is_not_expected(
    watch: Callable[..., Outcome], record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_THEME_TEMPLATE", "{project}")
    (folder := tmp_path / "harbour").mkdir()
    (folder / ".hermes-memory-project").write_text("lighthouse\n")
    record.say("one", *several(2))
    record("alter table sessions add cwd text")
    record("update sessions set cwd = ?", str(folder))
    assert expected(watch) == 2
    Marks(tmp_path / "pgvector" / "off_record", 10, "").change([mark_name("one:lighthouse")], marked=True)
    assert expected(watch) == 0


def test_a_branch_of_a_session_off_the_record_in_which_nobody_has_spoken_is_not_missed(
    watch: Callable[..., Outcome], record: Record, tmp_path: Path
) -> None:
    record.say("one", *several(2))
    Marks(tmp_path / "pgvector" / "off_record", 10, "").change([mark_name("one")], marked=True)
    record.say("two", *several(4), _branched_from="one")
    record("update sessions set parent_session_id = 'one', api_call_count = 0 where id = 'two'")
    assert expected(watch) == 0
    # It was put on the record again.
    record.say("two", ("back on the record", "Yes."), *several(3), age_s=600)
    assert expected(watch) > 0


def test_a_home_where_nobody_talked_needs_no_attention(watch: Callable[..., Outcome], tmp_path: Path) -> None:
    assert watch().code == 0
    assert watch("--json").document["newest_turn"] is None


def test_a_record_that_cannot_be_read_fails(watch: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database" * 100)
    failed = watch()
    assert failed.code == 1
    assert "state.db of the host cannot be read (DatabaseError)" in failed.err


def test_settings_that_are_wrong_need_attention(
    watch: Callable[..., Outcome], record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_POOL_MAX", "many")
    found = watch("--json")
    assert found.code == 3
    assert [finding["reason"] for finding in found.document["findings"]] == ["settings"]
    assert "HERMES_PGVECTOR_POOL_MAX" in found.document["findings"][0]["found"]


def test_a_database_that_only_reads_needs_attention(watch: Callable[..., Outcome], database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("alter database {} set default_transaction_read_only = on").format(name))
    outcome = watch()
    assert outcome.code == 3
    assert "is read-only: nothing is stored there; to do: hermes-pgvector doctor\n" in outcome.err


def test_a_locked_table_needs_attention(watch: Callable[..., Outcome], database: str) -> None:
    with psycopg.connect(database) as blocker:
        blocker.execute("lock table conversations")
        outcome = watch()
    assert outcome.code == 3
    assert "tables are locked by another transaction; to do: hermes-pgvector doctor\n" in outcome.err


def test_a_refused_connection_has_the_remedy_of_the_refusal(
    watch: Callable[..., Outcome], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"refused_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} login connection limit 0").format(sql.Identifier(role)))
        try:
            monkeypatch.setenv("HERMES_PGVECTOR_DSN", make_conninfo(database, user=role))
            outcome = watch()
        finally:
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
    assert outcome.code == 3
    assert f'; to do: as an administrator, in psql: alter role "{role}" connection limit -1;\n' in outcome.err


def test_odd_texts_in_the_record_are_compared_like_others(watch: Callable[..., Outcome], record: Record) -> None:
    odd = ("\0" * 50, "<memory-context>" * 10, "x" * 1_000_000, "\0json:{" + "[" * 100_000, "\r\n" * 30)
    record.say("odd", *((text, ANSWER.format(n)) for n, text in enumerate(odd)))
    assert expected(watch) == len(odd)


def test_bounds_of_options_are_told(watch: Callable[..., Outcome]) -> None:
    for option, value in (("--hours", "0"), ("--turns", "1001"), ("--settle", "-1"), ("--wait", "x")):
        refused = watch(option, value)
        assert refused.code == 2
        assert option in refused.err


def test_the_metrics_can_be_printed_and_a_file_that_cannot_be_written_fails(
    watch: Callable[..., Outcome], record: Record, tmp_path: Path
) -> None:
    assert f'attention{{home="{tmp_path}",reason="turns"}} 0' in watch("--metrics").out
    refused = watch("--metrics", str(tmp_path / "missing" / "file"))
    assert refused.code == 1
    assert "cannot be written" in refused.err


def test_a_metric_line_survives_any_name_of_a_home() -> None:
    text = metrics.lines(Path('/a"b\\c\nd'), {"turns"}, {"turns_expected": 3.0})
    labels = [line for line in text.splitlines() if line.startswith("hermes_pgvector_attention")]
    assert len(labels) == len(REASONS)
    assert labels[REASONS.index("turns")] == 'hermes_pgvector_attention{home="/a\\"b\\\\c\\nd",reason="turns"} 1'


@pytest.mark.parametrize(
    "head", ["#!{}\n", "#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''\n", "#!/bin/sh\n'''exec' '{}' \"$0\"\n"]
)
def test_the_python_of_a_host_is_found_in_a_folder_with_blanks(head: str, tmp_path: Path) -> None:
    python = tmp_path / ("bin" if head.startswith("#!{") else "a folder with blanks") / "python3.11"
    command = tmp_path / "hermes"
    command.write_text(head.format(python))
    assert python_of(command) == python
