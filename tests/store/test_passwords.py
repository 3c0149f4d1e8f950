"""A password that is changed while agents run."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from commandline import hermes_pgvector
from psycopg import sql
from psycopg.conninfo import make_conninfo
from waiting import wait_for

from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.outbox.spool import Spool
from hermes_memory_pgvector.runtime import acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.dsn import renewed
from hermes_memory_pgvector.store.schema import migrations

OLD = "postgresql://agent:old@db.example:5432/memory"


def test_a_running_agent_takes_up_the_new_password(tmp_path: Path, database: str, strict: str) -> None:
    migrations.migrate(database, runtime_role=strict)
    dsn = make_conninfo(database, user=strict, password="right")
    runtime = acquire(Settings(dsn=dsn, pool_idle_s=1, retry_max_s=0.1), str(tmp_path))  # type: ignore[arg-type]
    try:
        assert runtime.accept(TurnTaken(theme="t", user="before", assistant="answer"))
        assert runtime.writer.flush(30)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(sql.SQL("alter role {} password 'changed'").format(sql.Identifier(strict)))
            connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [strict])
        assert runtime.accept(TurnTaken(theme="t", user="between", assistant="answer"))
        wait_for(lambda: bool(runtime.writer.health.problem))
        assert runtime.writer.health.problem.startswith("Postgres refuses the connection: ")
        assert runtime.writer.health.problem.count("password authentication failed") == 1
        (tmp_path / ".env").write_text(f'HERMES_PGVECTOR_DSN="{dsn.replace("right", "changed")}"\n')
        assert runtime.accept(TurnTaken(theme="t", user="after", assistant="answer"))
        assert runtime.writer.flush(60)
        with psycopg.connect(database) as connection:
            found = connection.execute("select content from conversations where role = 'user' order by id").fetchall()
        assert found == [("before",), ("between",), ("after",)]
    finally:
        release(runtime)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(strict)))


@pytest.mark.parametrize(
    "command", [["search", "a question"], ["status"], ["migrate"], ["spool", "flush", "--wait", "1"]]
)
def test_a_refused_password_is_no_silent_server(
    tmp_path: Path, database: str, strict: str, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", make_conninfo(database, user=strict, password="wrong"))
    left = Spool(Home(tmp_path).spool, bytes_max=1 << 20, window_max=9)
    assert left.append(TurnTaken(theme="t", user="question", assistant="answer"))
    left.close()
    outcome = hermes_pgvector(*command, "--home", str(tmp_path))
    assert outcome.code == 1, outcome.shown
    assert "Postgres refuses the connection: " in outcome.err
    assert "password authentication failed" in outcome.err
    assert "does not answer" not in outcome.shown


@pytest.mark.parametrize(
    ("stored", "taken"),
    [
        ("postgresql://agent:new@db.example:5432/memory", True),
        ("host=db.example port=5432 dbname=memory user=agent password=new", True),
        ("postgresql://agent:new@other.example:5432/memory", False),
        ("postgresql://somebody:new@db.example:5432/memory", False),
        ("not a connection string", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("key", ["dsn", "recall_dsn"])
def test_only_another_password_is_taken_up(tmp_path: Path, stored: str, taken: bool, key: str) -> None:
    (tmp_path / ".env").write_text(f'HERMES_PGVECTOR_{key.upper()}="{stored}"\n')
    assert renewed(OLD, tmp_path, key) == (stored if taken else OLD)


def test_an_unreadable_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("memory: [")
    assert renewed(OLD, tmp_path) == OLD
