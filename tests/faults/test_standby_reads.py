"""Recalls read from a hot standby: what this process stored is found, and a standby that fails costs no answer."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import hermes_pgvector
from faultrig.memory import QUICK
from faultrig.pgbouncer import pooled
from faultrig.standby import AGENT, DATABASE, Node, Pair, pair
from loopback import Endpoint
from psycopg.conninfo import make_conninfo
from waiting import wait_for

from hermes_memory_pgvector.admin.configuration import change_env_file
from hermes_memory_pgvector.errors import DatabaseUnavailable
from hermes_memory_pgvector.model import Add, Recall, RecallRequest, Scope, TurnTaken
from hermes_memory_pgvector.recall.deadline import Deadline
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.schema.migrations import migrate

Start = Callable[..., Runtime]


@pytest.fixture
def servers(prepared_cluster: Path) -> Iterator[Pair]:
    with pair(prepared_cluster) as started:
        yield started


@pytest.fixture
def start(servers: Pair, endpoint: Endpoint, tmp_path: Path) -> Iterator[Start]:
    """Start a runtime of a home of its own, by default with the standby of `servers`."""
    started: list[Runtime] = []

    def make(**changed: Any) -> Runtime:
        home = tmp_path / f"home-{len(started)}"
        home.mkdir()
        addresses = {"dsn": servers.agents_dsn, "recall_dsn": agents_dsn(servers.standby)}
        settings = {
            **QUICK,
            **addresses,
            "embed_url": endpoint.url,
            "bulk_sync_on_init": False,
            "heal_interval_s": 3600,
            **changed,
        }
        started.append(acquire(Settings(**settings), home))
        assert started[-1].wait_ready(20)
        return started[-1]

    yield make
    for runtime in started:
        release(runtime)


@contextmanager
def cluster(servers: Pair) -> Iterator[Node]:
    """A server that has nothing in common with others. Start it as a primary by `make`."""
    node = Node(servers.primary.programs, servers.primary.folder.parent)
    try:
        yield node
    finally:
        node.remove()


def make(node: Node) -> None:
    node.run("initdb", "-U", "postgres", "--no-sync", "-A", "trust")
    node.start()
    node.ask(f"create role {AGENT} login")
    node.ask(f"create database {DATABASE}")


@contextmanager
def stopped(node: Node) -> Iterator[None]:
    """All processes of the server stopped, as when its machine hangs."""
    postmaster = int((node.data / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text()
    pids = [postmaster, *map(int, children.split())]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def agents_dsn(node: Node) -> str:
    return node.dsn(user=AGENT, dbname=DATABASE)


def store(runtime: Runtime, *words: str) -> None:
    for word in words:
        taken = TurnTaken(
            theme="ops",
            home=runtime.home.id,
            session_id="s",
            user=f"Where is the {word}?",
            assistant=f"The {word} is in the hall.",
        )
        assert runtime.accept(taken)
    assert runtime.writer.flush(20)


def recall(runtime: Runtime, word: str, budget_s: float = 3.0) -> Recall:
    return runtime.recall("turns", RecallRequest(query=word, scope=Scope("ops", ("ops",)), limit=5, budget_s=budget_s))


def finds(runtime: Runtime, word: str) -> bool:
    found = recall(runtime, word)
    assert found.degraded == ()
    return any(word in hit.content for hit in found.hits)


def catch_up(servers: Pair, runtime: Runtime) -> None:
    """Wait until a runtime writes nothing more, words and vectors included, and the standby has it all."""
    seen = [0] * 10

    def rests() -> bool:
        time.sleep(0.1)
        seen.append(runtime.database.timeline.reached)
        return len(set(seen[-10:])) == 1

    wait_for(rests, 30)
    servers.catch_up()


def counts(runtime: Runtime) -> tuple[int, int]:
    recalls = runtime._recaller.recalls()
    return recalls.recalls_by_standby, recalls.recalls_by_primary


def problem(runtime: Runtime) -> str:
    return runtime._recaller.recalls().standby_problem


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "standby" in each.getMessage()]


def test_recalls_read_from_the_standby_and_find_what_was_just_stored(servers: Pair, start: Start) -> None:
    runtime, other = start(recall_lag_s_max=3600), start(recall_dsn="")
    store(runtime, "lamp")
    catch_up(servers, runtime)
    assert finds(runtime, "lamp")
    assert counts(runtime) == (1, 0)
    servers.standby.ask("select pg_wal_replay_pause()")
    store(runtime, "ladder")
    assert finds(runtime, "ladder")
    assert counts(runtime) == (1, 1)
    servers.standby.ask("select pg_wal_replay_resume()")
    catch_up(servers, runtime)
    assert finds(runtime, "ladder")
    assert counts(runtime) == (2, 1)
    servers.standby.ask("select pg_wal_replay_pause()")
    store(other, "bucket")
    assert finds(other, "bucket")
    assert not finds(runtime, "bucket")
    servers.standby.ask("select pg_wal_replay_resume()")
    catch_up(servers, runtime)
    assert finds(runtime, "bucket")
    assert problem(runtime) == ""


def test_recalls_write_nothing_on_the_standby(servers: Pair, start: Start) -> None:
    runtime = start()
    store(runtime, "lamp")
    assert runtime.accept(Add(theme="ops", home=runtime.home.id, session_id="s", target="memory", content="a lamp"))
    assert runtime.writer.flush(20)
    catch_up(servers, runtime)
    request = RecallRequest(query="lamp yesterday", scope=Scope("ops", None), limit=5, budget_s=3, context=2)
    found = runtime.recall_each(("entries", "turns", "facts"), request)
    assert [bool(each.hits) for each in found] == [True, True, False]
    assert [each.degraded for each in found] == [(), (), ()]
    assert counts(runtime) == (1, 0)


def test_a_standby_that_is_killed_costs_no_recall_its_answer(
    servers: Pair, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = start()
    store(runtime, "lamp")
    catch_up(servers, runtime)
    took, end = [], threading.Event()

    def ask() -> None:
        while not end.is_set():
            began = time.monotonic()
            assert finds(runtime, "lamp")
            took.append(time.monotonic() - began)

    pool = ThreadPoolExecutor(2)
    asking = [pool.submit(ask) for _ in range(2)]
    wait_for(lambda: counts(runtime)[0] > 100)
    servers.standby.kill()
    by_primary = counts(runtime)[1]
    wait_for(lambda: counts(runtime)[1] > by_primary + 100)
    assert problem(runtime)
    servers.standby.start()
    by_standby = counts(runtime)[0]
    wait_for(lambda: counts(runtime)[0] > by_standby + 100, 40)
    end.set()
    for each in asking:
        each.result(20)
    assert len([each for each in warnings(caplog) if "not read from" in each]) == 1
    assert max(took) < 1
    print(f"{len(took)} recalls, the slowest took {max(took):.3f} s")


def test_a_recall_that_began_before_another_one_failed_does_not_end_the_outage(
    servers: Pair, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = start()
    store(runtime, "lamp")
    catch_up(servers, runtime)
    assert finds(runtime, "lamp")
    asked, standby = runtime._recaller._servers, runtime._recaller._servers._standby

    def fails(server: Database, _: Deadline) -> None:
        if server is standby:
            raise DatabaseUnavailable("it is gone")

    def answers_late(server: Database, _: Deadline) -> None:
        if server is standby:
            asked.ask(fails, Deadline(5))

    asked.ask(answers_late, Deadline(5))
    assert problem(runtime) == "it is gone"
    assert len(warnings(caplog)) == 1
    wait_for(lambda: finds(runtime, "lamp") and not problem(runtime))


def test_a_standby_that_hangs_costs_one_recall_half_a_second(servers: Pair, start: Start) -> None:
    runtime = start()
    store(runtime, "lamp")
    catch_up(servers, runtime)
    assert finds(runtime, "lamp")
    with stopped(servers.standby):
        took = []
        for _ in range(20):
            began = time.monotonic()
            assert finds(runtime, "lamp")
            took.append(time.monotonic() - began)
            time.sleep(0.1)
        assert took[0] < 1
        assert max(took[1:]) < 0.3, took
    wait_for(lambda: finds(runtime, "lamp") and counts(runtime)[0] > 1, 20)


def test_a_promoted_standby_is_not_read_from(servers: Pair, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    runtime = start()
    store(runtime, "lamp")
    catch_up(servers, runtime)
    assert finds(runtime, "lamp")
    servers.standby.promote()
    for word in ("ladder", "bucket"):
        store(runtime, word)
        assert finds(runtime, word)
    assert "promoted" in problem(runtime)
    assert len(warnings(caplog)) == 1


def test_servers_that_are_no_standby_of_the_primary_are_not_read_from(
    servers: Pair, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster(servers) as stranger, cluster(servers) as standby:
        make(stranger)
        bare = start(recall_dsn=agents_dsn(stranger))
        store(bare, "lamp")
        assert finds(bare, "lamp")
        assert "lacks" in problem(bare)
        migrate(stranger.dsn(dbname=DATABASE), dimensions=384, runtime_role=AGENT)
        for word, words in (("ladder", "no standby"), ("bucket", "another server")):
            node = stranger if words == "no standby" else standby
            if node is standby:
                standby.follow(str(stranger.folder))
            runtime = start(recall_dsn=agents_dsn(node))
            store(runtime, word)
            assert finds(runtime, word)
            assert words in problem(runtime)
            assert counts(runtime) == (0, 1)
    assert len(warnings(caplog)) == 3


def test_while_the_primary_is_away_the_standby_answers_however_far_it_is_behind(servers: Pair, start: Start) -> None:
    runtime = start(recall_lag_s_max=0)
    store(runtime, "lamp")
    catch_up(servers, runtime)
    servers.standby.ask("select pg_wal_replay_pause()")
    store(runtime, "ladder")
    assert finds(runtime, "ladder")
    servers.primary.kill()

    def answered() -> bool:
        found = recall(runtime, "lamp")
        doubtful = any("may lack what was stored last" in each for each in found.degraded)
        return doubtful and any("lamp" in hit.content for hit in found.hits)

    # On a busy machine one may run out of time.
    wait_for(answered, 20)
    servers.primary.start()
    wait_for(lambda: not recall(runtime, "ladder").degraded, 20)
    assert finds(runtime, "ladder")


def test_no_connection_to_the_standby_is_opened_before_a_recall_or_kept(servers: Pair, start: Start) -> None:
    runtime = start()
    store(runtime, "lamp")
    connections = "select count(*) from pg_stat_activity where application_name like 'hermes-pgvector%'"
    assert servers.standby.ask(connections) == 0
    catch_up(servers, runtime)
    assert finds(runtime, "lamp")
    assert servers.standby.ask(connections) == 1
    wait_for(lambda: servers.standby.ask(connections) == 0, 20)


def test_status_and_doctor_tell_of_the_standby(servers: Pair, start: Start) -> None:
    runtime = start()
    home = runtime.home.path
    variables = {"HERMES_PGVECTOR_DSN": servers.agents_dsn, "HERMES_PGVECTOR_RECALL_DSN": agents_dsn(servers.standby)}
    change_env_file(home / ".env", variables)
    store(runtime, "lamp")
    catch_up(servers, runtime)
    assert finds(runtime, "lamp")
    wait_for(lambda: command(home, "status")["standby"]["recalls"] == {"by_standby": 1, "by_primary": 0}, 20)
    told = command(home, "status")["standby"]
    assert told["problem"] == ""
    assert told["lag_s"] < 5
    assert standby_check(home)["verdict"] == "ok"
    servers.standby.ask("select pg_wal_replay_pause()")
    change_env_file(home / ".env", {"HERMES_PGVECTOR_RECALL_LAG_S_MAX": "0"})
    store(runtime, "ladder")
    behind = standby_check(home)
    assert (behind["verdict"], "behind, more than recall_lag_s_max" in behind["found"]) == ("warning", True)
    assert "pg_stat_replication" in behind["remedy"]
    servers.standby.kill()
    dead = standby_check(home)
    assert (dead["verdict"], "does not answer" in dead["found"]) == ("warning", True)
    assert "HERMES_PGVECTOR_RECALL_DSN" in dead["remedy"]
    assert command(home, "status")["standby"]["problem"]


def command(home: Path, *arguments: str) -> Any:
    try:
        return hermes_pgvector("--home", str(home), "--json", *arguments).document
    finally:
        for name in [name for name in os.environ if name.startswith("HERMES_PGVECTOR_")]:
            del os.environ[name]  # of `.env`, which the command has read


def standby_check(home: Path) -> dict[str, str]:
    (found,) = [check for check in command(home, "doctor")["checks"] if check["name"] == "standby"]
    return found


def test_a_conflict_with_recovery_costs_no_recall_its_answer(servers: Pair, start: Start) -> None:
    """The standby cancels what reads rows that the primary has removed."""
    for statement in ("alter system set max_standby_streaming_delay = 0", "select pg_reload_conf()"):
        servers.standby.ask(statement)  # type: ignore[arg-type]
    runtime = start()
    store(runtime, *(f"lamp {number}" for number in range(200)))
    catch_up(servers, runtime)
    end = threading.Event()

    def ask() -> int:
        asked = 0
        while not end.is_set():
            assert finds(runtime, "lamp")
            asked += 1
        return asked

    pool = ThreadPoolExecutor(2)
    asking = [pool.submit(ask) for _ in range(2)]
    with psycopg.connect(servers.primary.dsn(dbname=DATABASE), autocommit=True) as connection:
        until = time.monotonic() + 60
        while conflicts(servers.standby) < 3 and time.monotonic() < until and not any(each.done() for each in asking):
            connection.execute("update conversations set metadata = metadata")
            connection.execute("vacuum conversations")
    end.set()
    asked = sum(each.result(20) for each in asking)
    assert conflicts(servers.standby) >= 3
    assert counts(runtime)[0] > 0
    print(f"{asked} recalls, {conflicts(servers.standby)} conflicts, by standby and primary: {counts(runtime)}")


def conflicts(standby: Node) -> int:
    """How many statements the standby has cancelled, whatever they held: a lock, a snapshot or a buffer."""
    return int(standby.ask(f"select conflicts from pg_stat_database where datname = '{DATABASE}'"))  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["the standby is first", "the standby is second"])
def test_the_address_of_the_standby_may_name_several_hosts(servers: Pair, start: Start, order: str) -> None:
    hosts = [servers.standby.folder, servers.primary.folder, servers.primary.folder / "none"]
    several = ",".join(map(str, hosts if "first" in order else reversed(hosts)))
    runtime = start(recall_dsn=make_conninfo(agents_dsn(servers.standby), host=several, target_session_attrs="standby"))
    store(runtime, "lamp")
    catch_up(servers, runtime)
    assert finds(runtime, "lamp")
    assert counts(runtime) == (1, 0)


def test_after_a_failover_the_other_standby_is_read_from_when_it_follows(servers: Pair, start: Start) -> None:
    with cluster(servers) as other:
        other.follow(str(servers.standby.folder))
        runtime = start(recall_dsn=agents_dsn(other))
        store(runtime, "lamp")
        wait_for(lambda: finds(runtime, "lamp") and counts(runtime)[0] > 0, 20)
        servers.primary.kill()
        servers.standby.promote()
        store(runtime, "ladder")
        assert finds(runtime, "ladder")
        by_standby = counts(runtime)[0]
        assert "another timeline" in problem(runtime)
        servers.standby.ask("checkpoint")
        wait_for(lambda: other.ask("select pg_last_wal_replay_lsn()") == other.ask("select pg_last_wal_receive_lsn()"))
        other.ask("checkpoint")
        wait_for(lambda: finds(runtime, "ladder") and counts(runtime)[0] > by_standby, 40)
        assert problem(runtime) == ""


def test_poolers_may_stand_before_both_servers(servers: Pair, start: Start) -> None:
    nodes = (servers.primary, servers.standby)
    with (
        pooled(nodes[0].dsn(dbname=DATABASE)) as before_primary,
        pooled(nodes[1].dsn(dbname=DATABASE)) as before_standby,
    ):
        runtime = start(dsn=before_primary.dsn, recall_dsn=before_standby.dsn, recall_lag_s_max=3600)
        store(runtime, "lamp")
        catch_up(servers, runtime)
        assert finds(runtime, "lamp")
        assert counts(runtime) == (1, 0)
        servers.standby.ask("select pg_wal_replay_pause()")
        store(runtime, "ladder")
        assert finds(runtime, "ladder")
        assert counts(runtime) == (1, 1)
