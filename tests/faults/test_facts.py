"""Facts that many processes write at once, that a killed process has accepted, and that come hours late."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from faultrig.releases import command_line, release_2_0_0
from waiting import wait_for

from hermes_memory_pgvector.model import FactsTicked, FactWritten, now
from hermes_memory_pgvector.outbox.codec import encode
from hermes_memory_pgvector.runtime import acquire, release
from hermes_memory_pgvector.settings import Settings

PROCESSES, ROUNDS, KEYS = 8, 25, 4
# Accepts the events that it reads, one a line, and answers each when it is durable.
WRITER = """
    import json, sys
    from hermes_memory_pgvector.outbox.codec import decode
    from hermes_memory_pgvector.runtime import acquire
    from hermes_memory_pgvector.settings import Settings
    runtime = acquire(Settings(**json.loads(sys.argv[1])), sys.argv[2])
    runtime.writer.wake()
    print("ready", flush=True)
    for line in sys.stdin:
        print(runtime.accept(decode(line)), flush=True)
    print(runtime.writer.flush(60), flush=True)
"""
Start = Callable[..., "Writer"]


class Writer:
    """A process with the memory of a home."""

    def __init__(self, home: Path, **values: Any) -> None:
        home.mkdir(parents=True, exist_ok=True)
        values = {"embed_on_write": False, "batch_linger_s": 0, "adopt_interval_s": 1, **values}
        command = [sys.executable, "-P", "-c", textwrap.dedent(WRITER), json.dumps(values), str(home)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
        assert self._answer() == "ready"

    def send(self, *events: FactWritten | FactsTicked) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(encode(event) + b"\n" for event in events))
        self.process.stdin.flush()

    def accepted(self, count: int) -> None:
        assert [self._answer() for _ in range(count)] == ["True"] * count

    def end(self) -> bool:
        """Store everything and end; returns whether all was stored."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        stored = self._answer()
        self.process.wait(30)
        return stored == "True"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[Writer] = []

    def make(home: Path, **values: Any) -> Writer:
        made.append(Writer(home, **values))
        return made[-1]

    yield make
    for writer in made:
        if writer.process.poll() is None:
            writer.kill()


def fact(writer: int, number: int, target: str = "", **more: Any) -> FactWritten:
    return FactWritten(
        **{"theme": "ops", "session_id": f"session {writer}", "scope": "launch", "kind": "V",
           "target": target or f"shared.{number % KEYS}", "content": f"{number} of {writer}", **more}
    )  # fmt: skip


def stored(dsn: str, condition: str = "true") -> list[tuple[str, str, str]]:
    with psycopg.connect(dsn) as connection:
        query = f"select target, content, status from facts where {condition} order by written_at, event_id"
        return connection.execute(query.encode()).fetchall()


def newest(events: Sequence[FactWritten]) -> dict[str, str]:
    return {event.target: event.content for event in sorted(events, key=lambda event: (event.at, event.id))}


def test_eight_processes_that_write_at_once_lose_and_double_nothing(
    tmp_path: Path, database: str, start: Start
) -> None:
    writers = [start(tmp_path / f"home-{number % 4}", dsn=database) for number in range(PROCESSES)]
    events: list[FactWritten] = []
    for number in range(ROUNDS):
        for index, writer in enumerate(writers):
            # Some in no scope: the row of a scope makes its writers wait for each other.
            shared = fact(index, number, scope="", session_id=f"plain {index}")
            again = replace(shared, id=uuid.uuid4().hex, at=now())
            own = fact(index, number, f"own.{index}.{number}")
            writer.send(shared, own, again, FactsTicked(theme="ops", session_id=f"session {index}", turn=number))
            events += [shared, own, again]
    for writer in writers:
        writer.accepted(ROUNDS * 4)
        assert writer.end()
    current = stored(database, "status in ('active', 'cold')")
    assert {target: content for target, content, _ in current} == newest(events)
    assert len(current) == KEYS + PROCESSES * ROUNDS
    assert {(target, content) for target, content, _ in stored(database)} == {
        (event.target, event.content) for event in events
    }
    with psycopg.connect(database) as connection:
        (applied,) = connection.execute("select count(*) from memory_events").fetchone() or (0,)
        (scopes,) = connection.execute("select count(*) from fact_scopes").fetchone() or (0,)
    assert (applied, scopes) == (PROCESSES * ROUNDS * 4, 1)


@pytest.mark.parametrize("after", [5, 60])
def test_what_a_killed_process_had_accepted_is_stored_once_by_the_next_one(
    tmp_path: Path, database: str, start: Start, after: int
) -> None:
    events = [fact(0, number, f"own.{number % 40}") for number in range(120)]
    first = start(tmp_path / "home", dsn=database, batch_max=4)
    first.send(*events)
    first.accepted(120)
    wait_for(lambda: len(stored(database)) >= after)
    first.kill()
    second = start(tmp_path / "home", dsn=database)
    wait_for(lambda: len(stored(database)) == 120, 30)
    assert second.end()
    assert [(target, content) for target, content, _ in stored(database)] == [(e.target, e.content) for e in events]
    assert {target: content for target, content, _ in stored(database, "status = 'active'")} == newest(events)


def test_a_spool_that_comes_hours_late_goes_to_history_and_closes_nothing_newer(
    tmp_path: Path, database: str, start: Start
) -> None:
    early = now() - timedelta(hours=5)
    away = start(tmp_path / "away", dsn="postgresql://nobody@127.0.0.1:1/none", connect_timeout_s=0.5)
    away.send(
        fact(0, 0, "port", at=early, content="5432"),
        fact(0, 1, "host", at=early, content="db1"),
        fact(0, 2, "work", at=early, content="done", kind="done"),
    )
    away.accepted(3)
    away.kill()
    there = start(tmp_path / "there", dsn=database)
    there.send(fact(1, 0, "port", content="5433"))
    there.accepted(1)
    assert there.end()
    late = start(tmp_path / "away", dsn=database)
    wait_for(lambda: len(stored(database)) == 4, 30)
    assert late.end()
    assert set(stored(database)) == {
        ("port", "5432", "superseded"), ("host", "db1", "cold"), ("work", "done", "cold"),
        ("port", "5433", "active"),
    }  # fmt: skip


def test_facts_that_a_process_of_2_0_0_takes_over_wait_as_dead_letters_and_are_stored_by_a_retry(
    tmp_path: Path, database: str, start: Start
) -> None:
    old, home = release_2_0_0(tmp_path / "release"), tmp_path / "home"
    away = start(home, dsn="postgresql://nobody@127.0.0.1:1/none", connect_timeout_s=0.5)
    events = [fact(0, number, f"own.{number}") for number in range(5)]
    away.send(*events, FactsTicked(theme="ops", session_id="session 0", turn=1, closing=True))
    away.accepted(6)
    away.kill()
    values = {"dsn": database, "embed_on_write": "false", "batch_linger_s": "0", "retry_max_s": "0.3"}
    code, shown = command_line(old, home, values, "spool", "flush", "--wait", "60")
    assert (code, stored(database)) == (0, []), shown
    code, shown = command_line(None, home, values, "spool", "retry", "--all")
    assert code == 0, shown
    code, shown = command_line(None, home, values, "spool", "flush", "--wait", "60")
    assert code == 0, shown
    assert stored(database) == [(event.target, event.content, "cold") for event in events]


def test_a_fact_that_can_never_be_stored_becomes_a_dead_letter(tmp_path: Path, database: str) -> None:
    runtime = acquire(Settings(dsn=database, embed_on_write=False, batch_linger_s=0), tmp_path / "home")  # type: ignore[arg-type]
    try:
        for bad in ({"kind": "X"}, {"content": "x" * 401}, {"target": "\0 "}, {"scope": "s" * 101}):
            assert runtime.accept(fact(0, 1, **bad))
        assert runtime.accept(fact(0, 2))
        assert runtime.writer.flush(20)
        reasons = sorted(letter.reason for letter in runtime.dead_letters)
    finally:
        release(runtime)
    assert reasons == [
        "kind is 'X'; it must be one of C, D, V, ?, done, obs",
        "the content of the fact has 401 characters; at most 400 are stored",
        "the scope of the fact has 101 characters; at most 100 are stored",
        "the target of the fact is empty",
    ]
    assert stored(database) == [("shared.2", "2 of 0", "active")]
