"""An outage of the database or of the embedder: nothing is lost, and each session is told once of it and of its end."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.messenger import Messenger, Person
from hostrig.model import ModelEndpoint, Request
from hostrig.rows import Rows
from loopback import Endpoint
from psycopg.conninfo import make_conninfo
from servers import Server

from hermes_memory_pgvector.store.schema import migrations

pytestmark = one_server

ANN = Person("+491705551234", "8d1f6f2e-0c5b-4a7e-9f57-6a1d0f3c2b11", "Ann Aebischer")
BEN = Person("+491709998877", "1b2c3d4e-aaaa-4bbb-8ccc-123456789abc", "Ben Brunner")
AFTER_S = 1.0
BEGAN, ENDED = "Memory degraded since", "Memory is back"
# A terminal wraps lines.
STORED = re.compile(r"Memory is back:\s+(\d+)\s+turns?\s+stored")


def about(n: int) -> str:
    return f"Tell me about the history of bridge number {n} over the river Aare"


def told(requests: list[Request], what: str) -> list[int]:
    """The numbers of the requests whose last message holds a notice."""
    return [n for n, request in enumerate(requests) if any(what in block for block in request.recalled)]


@pytest.fixture(scope="module")
def role(server: Server) -> Iterator[str]:
    """A login role. It can only be dropped after the databases of the tests, hence the wider scope."""
    name = f"agent_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'for-tests'".encode())
    yield name
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def locked_out(database: str, role: str) -> Callable[[], object]:
    """`with locked_out():` the role of the agent cannot log in, and its connections are closed."""

    @contextmanager
    def lock_out() -> Iterator[None]:
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute(f"ALTER ROLE {role} NOLOGIN".encode())
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [role])
            try:
                yield
            finally:
                admin.execute(f"ALTER ROLE {role} LOGIN".encode())

    return lock_out


@pytest.fixture
def agent(make_hermes: Callable[..., Hermes], database: str, role: str) -> Hermes:
    """A host whose memory logs in as the role."""
    migrations.migrate(database, runtime_role=role)
    dsn = make_conninfo(database, user=role, password="for-tests")
    return make_hermes(dsn=dsn, outage_after_s=AFTER_S, retry_max_s=1.0)


@pytest.fixture
def messenger() -> Iterator[Messenger]:
    network = Messenger()
    yield network
    network.close()


@pytest.mark.main_host("a")
def test_a_chat_shows_an_outage_of_four_turns_once_and_its_end_once_and_all_turns_are_stored(
    agent: Hermes, model: ModelEndpoint, rows: Rows, locked_out: Callable[..., object]
) -> None:
    with agent.chat() as chat:
        chat.ask(about(0))
        rows.wait(lambda rows: len(rows.turns()) == 2)
        with locked_out():
            for n in range(1, 5):
                chat.ask(about(n))
                time.sleep(AFTER_S)
        assert ENDED not in chat.text
        # A turn that is said before the database is back would be stored late, too.
        rows.wait(lambda rows: len(rows.turns()) == 10)
        for n in range(5, 7):
            chat.ask(about(n))
        assert chat.text.count(BEGAN) == 1
        assert chat.text.count(ENDED) == 1
        assert [int(found) for found in STORED.findall(chat.text)] == [4]
        chat.leave()
    # The host showed it, so the model was not told.
    assert told(model.requests, BEGAN) == told(model.requests, ENDED) == []
    assert [turn.content for turn in rows.turns() if turn.role == "user"] == [about(n) for n in range(7)]
    assert len(rows.turns()) == 14


@pytest.mark.main_host("b")
def test_each_session_of_a_gateway_is_told_once_although_the_gateway_starts_again_during_the_outage(
    agent: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger, locked_out: Callable[..., object]
) -> None:
    def write(person: Person, n: int) -> None:
        messenger.write(person, about(n), until="understood")

    with agent.gateway(**messenger.environment) as gateway:
        write(ANN, 0)
        write(BEN, 1)
        rows.wait(lambda rows: len(rows.turns()) == 4)
        with locked_out():
            for n in range(2, 5):
                write(ANN, n)
                time.sleep(AFTER_S)
            gateway.stop()
            with agent.gateway(**messenger.environment) as gateway:
                write(ANN, 5)
                write(BEN, 6)
                time.sleep(AFTER_S)
                write(ANN, 7)
                write(BEN, 8)
                gateway.stop()
                assert len(rows.turns()) == 4
    with agent.gateway(**messenger.environment) as gateway:
        for n in range(9, 13):
            write(ANN, n)
            write(BEN, n + 10)
        gateway.stop()
    began = [model.requests[n] for n in told(model.requests, BEGAN)]
    ended = [model.requests[n] for n in told(model.requests, ENDED)]
    assert [len(began), len(ended)] == [2, 2]
    assert {request.user.count(BEGAN) for request in began} == {request.user.count(ENDED) for request in ended} == {1}
    # Ann said five turns meanwhile, Ben two; each reads of his own only.
    assert sorted(int(found) for request in ended for found in STORED.findall(request.user)) == [2, 5]
    assert len({turn.content for turn in rows.turns() if turn.role == "user"}) == 17
    assert len(rows.turns()) == 2 * 17


@pytest.mark.slow
def test_an_outage_of_the_embedder_is_told_once_and_its_end_once(
    agent: Hermes, model: ModelEndpoint, rows: Rows, embedder: Endpoint
) -> None:
    with agent.gateway() as gateway:
        gateway.ask(about(0), key="ops", session="one")
        rows.wait(lambda rows: len(rows.turns()) == 2 and all(turn.embedded for turn in rows.turns()))
        embedder.status = 503
        for n in range(1, 5):
            gateway.ask(about(n), key="ops", session="one")
            time.sleep(AFTER_S)
        embedder.status = 200
        rows.wait(lambda rows: len(rows.turns()) == 10 and all(turn.embedded for turn in rows.turns()), timeout_s=60)
        for n in range(5, 7):
            gateway.ask(about(n), key="ops", session="one")
        gateway.stop()
    assert len(told(model.requests, BEGAN)) == len(told(model.requests, ENDED)) == 1
    assert told(model.requests, BEGAN)[0] < 5 <= told(model.requests, ENDED)[0]


@pytest.mark.slow
def test_a_blip_is_not_told(agent: Hermes, model: ModelEndpoint, rows: Rows, locked_out: Callable[..., object]) -> None:
    agent.set(outage_after_s=600)
    with agent.gateway() as gateway:
        gateway.ask(about(0), key="ops", session="one")
        with locked_out():
            gateway.ask(about(1), key="ops", session="one")
            gateway.ask(about(2), key="ops", session="one")
        gateway.ask(about(3), key="ops", session="one")
        rows.wait(lambda rows: len(rows.turns()) == 8)
        gateway.stop()
    assert told(model.requests, BEGAN) == told(model.requests, ENDED) == []
