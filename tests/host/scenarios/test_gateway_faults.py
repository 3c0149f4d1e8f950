"""A gateway in trouble: an embedder that fails, many sessions, signals, and secrets in all that it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import Call, ModelEndpoint
from hostrig.rows import Rows
from loopback import Endpoint
from psycopg.conninfo import make_conninfo

pytestmark = one_server

PASSWORD = "vertraulich-7731"
PROMPT = "Which port does the staging database listen on these days?"
ANSWER = "It listens on 5433 now, behind pgbouncer on 6432."
# Threads and files that a host may have more of at one moment than at another.
SLACK = 5
QUESTION = "Tell me the port of the staging database, please"


def save(fact: str) -> Call:
    return Call("memory", {"action": "add", "target": "memory", "content": fact})


@contextmanager
def nothing_written(rows: Rows) -> Iterator[None]:
    """Reads go on, writes of turns wait, while the block runs."""
    with psycopg.connect(rows.dsn) as connection:
        connection.execute("LOCK TABLE conversations IN SHARE MODE")
        yield


def test_a_signal_right_after_the_reply_loses_nothing(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, embedder: Endpoint, rows: Rows
) -> None:
    hermes = make_hermes(prefetch_budget_s=0.2)
    with hermes.gateway() as gateway:
        gateway.ask("Say something about the weather of tomorrow", key="ops")
        rows.wait(lambda rows: len(rows.turns()) == 2)
        model.says(ANSWER)
        with embedder.hanging(), nothing_written(rows):
            assert gateway.ask(PROMPT, key="ops") == ANSWER
            gateway.stop()
    assert len(rows.turns()) == 2
    hermes.ask("Say something about the weather of yesterday")
    rows.wait(lambda rows: len(rows.turns()) == 6 and all(turn.embedded for turn in rows.turns()))
    assert rows.said("ops")[2:] == [PROMPT, ANSWER]
    assert hermes.spooled() == 0


@pytest.mark.slow
@pytest.mark.parametrize("before", ["it answered before", "it never answered"])
def test_an_embedder_that_answers_503_costs_the_vectors_only_and_not_for_ever(
    before: str,
    make_hermes: Callable[..., Hermes],
    model: ModelEndpoint,
    embedder: Endpoint,
    rows: Rows,
) -> None:
    hermes = make_hermes()
    with hermes.gateway() as gateway:
        if before == "it answered before":
            gateway.ask("Say something about the weather of tomorrow", key="weather")
            rows.wait(lambda rows: len(rows.turns()) == 2 and all(turn.embedded for turn in rows.turns()))
        embedder.status = 503
        model.says(save("Port 5433 of alpha is staging."), ANSWER)
        assert gateway.ask(PROMPT, key="ops") == ANSWER
        rows.wait(lambda rows: len(rows.turns("ops")) == 2 and len(rows.entries()) == 1)
        assert not any(turn.embedded for turn in rows.turns("ops"))
        gateway.ask(QUESTION, key="ops")
        (recalled,) = model.requests[-1].recalled
        assert "behind pgbouncer on 6432" in recalled
        assert "Port 5433 of alpha is staging." in model.requests[-1].system
        rows.wait(lambda rows: len(rows.turns("ops")) == 4)
        embedder.status = 200
        # Nobody asks anything: the gateway does it by itself.
        rows.wait(lambda rows: all(turn.embedded for turn in rows.turns()), timeout_s=60)
        rows.wait(lambda rows: not rows("SELECT FROM memory_entries WHERE embedding IS NULL"))


@pytest.mark.slow
def test_many_sessions_leave_connections_threads_and_files_flat(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    with hermes.gateway() as gateway:

        def ask(numbers: range) -> tuple[int, int, int]:
            for n in numbers:
                gateway.ask(f"Request {n}: tell me about the lighthouse number {n}", key=f"theme-{n}")
            rows.wait(lambda rows: len(rows.turns()) == 2 * (numbers.stop))
            return rows.connections(), gateway.threads(), gateway.open_files()

        ten, thirty = ask(range(10)), ask(range(10, 30))
        # One host parks what serves a session, with a thread of its own in each, for up to 128 sessions.
        parked = 20 if hermes.host == "b" else 0
        assert len({turn.session for turn in rows.turns()}) == 30
        assert thirty[0] <= ten[0] + 1
        assert thirty[1] <= ten[1] + parked + SLACK
        assert thirty[2] <= ten[2] + SLACK
    assert hermes.complaints() == []


@pytest.mark.slow
def test_the_password_of_the_database_is_nowhere(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows
) -> None:
    hermes = make_hermes({"logging": {"level": "DEBUG"}})
    # An address kept for documentation: nobody answers.
    away = f"postgresql://somebody:{PASSWORD}@192.0.2.1:5432/nowhere"
    said = ""
    for dsn in (make_conninfo(rows.dsn, password=PASSWORD), away):
        hermes.set(dsn=dsn)
        with hermes.gateway() as gateway:
            model.says(save(f"Staging {len(said)}."), ANSWER)
            gateway.ask(PROMPT, key="ops")
            if dsn != away:
                rows.wait(lambda rows: len(rows.turns("ops")) == 2)
                rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                     "WHERE datname = current_database() AND pid <> pg_backend_pid()")  # fmt: skip
            model.says([Call("recall_memory", {"query": "x"}), Call("recall_conversation", {"query": "y"})], "Well.")
            assert gateway.ask(QUESTION, key="ops") == "Well."
            gateway.stop()
            said += gateway.said
    assert PASSWORD in (hermes.home / "config.yaml").read_text()
    assert "hermes.pgvector" in hermes.logs()
    assert PASSWORD not in said + hermes.logs() + "".join(request.raw for request in model.seen) + rows.text()
