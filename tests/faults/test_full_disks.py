"""A full disk of the server or of the home: agents go on, it is named in words, and nothing accepted is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from faultrig.disk import fill, small_disk
from faultrig.postgres import own_postgres
from faultrig.releases import HookAgent
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.errors import SERVER_DISK_FULL, DatabaseUnavailable
from hermes_memory_pgvector.files import HOST_DISK_FULL
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.outbox.inspection import processes
from hermes_memory_pgvector.store.embedded.server import available

QUICK = {"retry_max_s": "0.3", "batch_linger_s": "0.02", "connect_timeout_s": "5", "embed_model": "words"}


class Lab:
    """An agent process of a home; its turns have numbers."""

    def __init__(self, home: Path, dsn: str, endpoint: Endpoint, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.dsn, self.log = home, dsn, log
        values = {**QUICK, "dsn": dsn, "embed_url": endpoint.url}
        for name, value in values.items():
            monkeypatch.setenv(f"HERMES_PGVECTOR_{name.upper()}", value)
        self.agent = HookAgent(None, home, values, log)
        self.agent.begin("s", agent_identity="ops")

    def say(self, number: int) -> None:
        """Take a turn that needs blocks of its own on any disk. The hook must not raise: the agent would end."""
        long = " ".join(str(place * number) for place in range(3000))
        self.agent.call(
            "s", "sync_turn", f"question {number}: where is the machine?", f"It is in {long}.", session_id="s"
        )

    def stored(self) -> list[int]:
        with psycopg.connect(self.dsn) as connection:
            rows = connection.execute("select content from conversations where role = 'user' order by id")
            return [int(row[0].removeprefix("question ").partition(":")[0]) for row in rows]

    def run(self, command: str) -> Outcome:
        return hermes_pgvector("--home", str(self.home), command)

    def refused(self) -> int:
        return sum(one.heartbeat.counters.refused for one in processes(Home(self.home).spool) if one.heartbeat)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_a_full_disk_of_the_server(
    stack: ExitStack, tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not available():
        pytest.skip("needs the extra [embedded]: a server on a disk of its own")
    disk = stack.enter_context(small_disk("200m"))
    server = stack.enter_context(own_postgres(disk))
    (tmp_path / "home").mkdir()
    lab = Lab(tmp_path / "home", server.dsn, endpoint, tmp_path / "log", monkeypatch)
    stack.callback(lab.agent.end)
    lab.say(0)
    wait_for(lambda: lab.stored() == [0])
    filler = fill(disk)
    for number in range(1, 30):
        lab.say(number)
    wait_for(lambda: SERVER_DISK_FULL in lab.log.read_text())
    wait_for(lambda: SERVER_DISK_FULL in lab.run("status").shown)
    assert lab.run("status").code == 3
    found = lab.run("doctor")
    assert found.code == 1
    assert f"server's disk: {SERVER_DISK_FULL}" in found.shown
    assert "→ free space on the server" in found.shown
    filler.unlink()
    wait_for(lambda: lab.stored() == list(range(30)))
    # The agent tells about once a second how it is.
    wait_for(lambda: SERVER_DISK_FULL not in lab.run("doctor").shown)
    assert lab.refused() == 0


def test_a_server_on_a_full_disk_is_started_when_there_is_room_again(stack: ExitStack) -> None:
    if not available():
        pytest.skip("needs the extra [embedded]: a server on a disk of its own")
    disk = stack.enter_context(small_disk("200m"))
    server = stack.enter_context(own_postgres(disk))
    server.stop(mode="immediate")
    filler = fill(disk)
    with pytest.raises(DatabaseUnavailable, match=HOST_DISK_FULL):
        server.ensure_running()
    filler.unlink()
    server.ensure_running()


def test_a_full_disk_of_the_home(
    stack: ExitStack, tmp_path: Path, database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = stack.enter_context(small_disk("2m"))
    (disk / "home").mkdir()
    lab = Lab(disk / "home", database, endpoint, tmp_path / "log", monkeypatch)
    stack.callback(lab.agent.end)
    lab.say(0)
    wait_for(lambda: lab.stored() == [0])
    fill(disk)
    for number in range(1, 5):
        lab.say(number)
    wait_for(lambda: HOST_DISK_FULL in lab.log.read_text())
    assert HOST_DISK_FULL in lab.run("status").shown
    assert lab.run("status").code == 1
    assert f"disk: {HOST_DISK_FULL}" in lab.run("doctor").shown
    assert f"spool: {HOST_DISK_FULL}" in lab.run("watch").shown
    # Alerts read the count of what is refused, also when not a block is free.
    filler, refused = fill(disk), lab.refused()
    lab.say(5)
    wait_for(lambda: lab.refused() > refused)
    filler.unlink()
    for number in range(6, 11):
        lab.say(number)
    # What was refused was not accepted; each other turn is there.
    wait_for(lambda: len(lab.stored()) == 11 - lab.refused())
    assert lab.stored()[-5:] == [6, 7, 8, 9, 10]
    assert HOST_DISK_FULL not in lab.run("doctor").shown


def test_a_setting_that_does_not_fit_on_the_disk_says_to_free_some_space(stack: ExitStack) -> None:
    disk = stack.enter_context(small_disk("64k"))
    fill(disk)
    refused = hermes_pgvector("--home", str(disk), "settings", "set", "recall_mode", "tools")
    assert refused.code == 1
    assert refused.err.endswith("(No space left on device): free some space, then try again\n")
