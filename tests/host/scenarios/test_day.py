"""A day in a messenger, in minutes: one session with compressions, restarts of the host, and two outages.

PG_TEST_DAY_TURNS says how many turns the day has. It is divided into parts of at most 50 turns. In each part facts are
told, then the session is compressed, then facts are asked for. The host starts again in every other part, the
database is away in one part and the embedder in another one. PG_TEST_DAY_SEED says which facts are asked for.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from faultrig.postgres import own_postgres
from hostrig.gateway import Gateway
from hostrig.hermes import Hermes
from hostrig.messenger import Messenger, Person
from hostrig.model import ModelEndpoint, Request
from hostrig.rows import Rows
from loopback import Endpoint

from hermes_memory_pgvector.store.embedded.server import EmbeddedServer, available

TURNS = int(os.environ.get("PG_TEST_DAY_TURNS", "500"))
SEED = int(os.environ.get("PG_TEST_DAY_SEED", "7"))
PARTS = max(2, TURNS // 50)
PART_TURNS = TURNS // PARTS
DATABASE_AWAY_IN, EMBEDDER_AWAY_IN = PARTS // 3, 2 * PARTS // 3
RESTARTED_IN = range(1, PARTS, 2)
# A compression keeps ten turns or fewer, and at first those that the session began with.
OPENING, FACTS, OUTAGE, ASKED = 2, 3, 5, 3
# Facts of this part and of earlier ones, each twice; after a compression.
CLOSING = 4 * ASKED
AFTER_S = 1.0
SUMMARY = "A summary: bridges over many rivers were discussed, and of none is anything known."
COMPRESSED_S_MAX = 30

ANN = Person("+491705551234", "8d1f6f2e-0c5b-4a7e-9f57-6a1d0f3c2b11", "Ann Aebischer")
THINGS = ("spare key", "bicycle", "telescope", "violin", "sewing machine", "kayak", "record player", "tent")
PLACES = ("behind the boiler", "under the stairs", "beside the window", "above the oven", "inside the barn")
QUESTIONS = (
    "Where has {name} left the {thing}?",
    "In which street has {name} left the {thing}?",
    "Is it known where {name} left the {thing}?",
    "{name} left the {thing} where, please?",
)
# With this ratio, both hosts keep the last 22,500 tokens or fewer. The turns after the facts of a part are longer.
COMPRESSION = {"target_ratio": 0.1}
ANSWER_WORDS = 500
WORDS = (
    "granite", "arch", "pillar", "winter", "toll", "ferry", "mason", "timber", "flood", "market", "guild", "repair",
    "century", "rope", "bishop", "quarry",
)  # fmt: skip
BEGAN, ENDED = "Memory degraded since", "Memory is back: "
BY_HOST = "[Heartbeat — recurring instruction, fires every 10m]\nLook whether something is to be done, number {}"


class Fact:
    """Something that is told once, and is asked for in several ways."""

    def __init__(self, number: int) -> None:
        self.thing, self.name = THINGS[number % len(THINGS)], _name(number)
        self.place = f"{PLACES[number % len(PLACES)]} in {_name(number + 1000)} Street"
        self._times = number

    @property
    def told(self) -> str:
        return f"{self.name} left the {self.thing} {self.place}."

    def question(self) -> str:
        self._times += 1
        return QUESTIONS[self._times % len(QUESTIONS)].format(thing=self.thing, name=self.name)


def _name(number: int) -> str:
    sounds = random.Random(number)
    return "".join(sounds.choice("bdfgklmnprstvz") + sounds.choice("aeiou") for _ in range(4)).capitalize()


class Day:
    """What Ann writes in one session, and what the model got for it. Each method writes turns and waits for answers."""

    def __init__(self, hermes: Hermes, model: ModelEndpoint, messenger: Messenger) -> None:
        self.said: list[tuple[str, str]] = []
        self._hermes, self._model, self._messenger = hermes, model, messenger
        self._gateway: Gateway | None = None
        self._words = random.Random(SEED)
        self._answer = ""
        model.script, model.errand = lambda _: self._answer, SUMMARY

    def start(self) -> None:
        self._gateway = self._hermes.gateway(**self._messenger.environment).__enter__()

    def stop(self) -> None:
        assert self._gateway is not None
        self._gateway.stop()
        self.close()

    def close(self) -> None:
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.__exit__(None, None, None)

    def write(self, text: str, answer: str = "") -> Request:
        """A turn; returns the request that the model got."""
        words = " ".join(self._words.choices(WORDS, k=ANSWER_WORDS))
        request = self._write(text, answer or f"Answer {len(self.said) + 1}: {words}.")
        self.said.append((text, self._answer))
        return request

    def chat(self, turns: int) -> list[Request]:
        return [self.write(f"Tell me about the history of bridge number {len(self.said)}.") for _ in range(turns)]

    def begin_by_host(self, number: int) -> Request:
        """A turn as a host begins it by itself: nobody reads its answer."""
        return self._write(BY_HOST.format(number), f"Nothing was to be done at number {number}.")

    def compress(self) -> None:
        """Compress the session in place."""
        before = self.archived()
        self._messenger.write(ANN, "/compress", until="ompress")
        deadline = time.monotonic() + COMPRESSED_S_MAX
        while self.archived() == before:
            assert time.monotonic() < deadline, f"nothing was compressed: {self._messenger.sent[-1]}"
            time.sleep(0.1)

    def archived(self) -> int:
        """The number of messages that compressions took out of the context."""
        with closing(sqlite3.connect(self._hermes.home / "state.db", timeout=10)) as record:
            return int(record.execute("SELECT count(*) FROM messages WHERE compacted").fetchone()[0])

    def _write(self, text: str, answer: str) -> Request:
        self._answer, before = answer, len(self._model.requests)
        self._messenger.write(ANN, text, until=answer)
        # Beside the turns, hosts ask the model whether anything of the conversation is worth saving.
        (request,) = [request for request in self._model.requests[before:] if text in request.user]
        return request


@pytest.fixture
def postgres() -> Iterator[EmbeddedServer]:
    """A server that the test may stop."""
    if not available():
        pytest.skip("needs the extra [embedded]: a server that the test may stop")
    with own_postgres() as server:
        yield server


@pytest.fixture
def database(postgres: EmbeddedServer) -> str:
    return postgres.dsn


@pytest.fixture
def messenger() -> Iterator[Messenger]:
    network = Messenger()
    yield network
    network.close()


@pytest.fixture
def day(make_hermes: Callable[..., Hermes], model: ModelEndpoint, messenger: Messenger) -> Iterator[Day]:
    # To a bag of words, an earlier question is so much nearer than the fact that it would hide it. Without a floor,
    # every turn has memories that must not be repeated.
    settings = {"outage_after_s": AFTER_S, "retry_max_s": 1.0, "min_similarity": -1.0}
    # Hosts begin a new session at four in the morning.
    hermes = make_hermes({"session_reset": {"mode": "none"}, "compression": COMPRESSION}, **settings)
    running = Day(hermes, model, messenger)
    yield running
    running.close()


@pytest.mark.slow
@pytest.mark.timeout(300 + 6 * TURNS)
def test_a_day_in_one_session_recalls_what_was_compressed_repeats_nothing_and_tells_each_outage_once(
    day: Day, model: ModelEndpoint, rows: Rows, postgres: EmbeddedServer, embedder: Endpoint
) -> None:
    choice = random.Random(SEED)
    facts: list[Fact] = []
    began_s = time.monotonic()

    def all_stored() -> None:
        rows.wait(lambda rows: len(rows.turns()) == 2 * len(day.said), timeout_s=60)

    def database_away(*, restarts: bool) -> None:
        all_stored()
        postgres.stop()
        day.chat(1)
        if restarts:
            day.stop()
            day.start()
        time.sleep(AFTER_S)
        assert day.begin_by_host(1).recalled == []
        day.chat(OUTAGE - 1)
        postgres.ensure_running()
        all_stored()
        assert day.begin_by_host(2).recalled == []

    def embedder_away(fact: Fact, *, restarts: bool) -> None:
        embedder.status = 503
        day.chat(1)
        if restarts:
            day.stop()
            day.start()
        time.sleep(AFTER_S)
        assert day.begin_by_host(3).recalled == []
        asked = day.write(fact.question())
        assert len(holding(asked, fact)) == 1, "words alone find it"
        day.chat(OUTAGE - 2)
        embedder.status = 200
        rows.wait(lambda rows: all(turn.embedded for turn in rows.turns()), timeout_s=60)
        assert day.begin_by_host(4).recalled == []

    day.start()
    for part in range(PARTS):
        end = PART_TURNS * (part + 1) if part < PARTS - 1 else TURNS
        day.chat(OPENING)
        told = [Fact(FACTS * part + n) for n in range(FACTS)]
        for fact in told:
            # By the model, because the summary of one host quotes all that the user said.
            day.write(f"What is new since number {len(day.said)}?", fact.told)
        if part == DATABASE_AWAY_IN:
            database_away(restarts=part in RESTARTED_IN)
        elif part == EMBEDDER_AWAY_IN:
            embedder_away(facts.pop(0), restarts=part in RESTARTED_IN)
        elif part in RESTARTED_IN:
            day.stop()
            day.start()
        fact = choice.choice(told)
        assert holding(day.write(fact.question()), fact) == [fact.told], "the context has it"
        day.chat(end - len(day.said) - CLOSING)
        day.compress()
        # Questions are stored, too, and are more alike than the fact is: each fact is asked for again in one part.
        choice.shuffle(facts)
        earlier, facts = facts[:ASKED], facts[ASKED:]
        wanted, compressed = [*told, *earlier], 0
        for fact in 2 * wanted:
            asked = day.write(fact.question())
            # One block may have several of them, and stands in the context of the next question.
            where = holding(asked, fact)
            assert len(where) == 1, (fact.told, where, asked.user)
            # A compression may keep some of what it could take away.
            compressed += where != [fact.told]
            assert where == [fact.told] or "<memory-context>" in where[0].partition(fact.place)[0], where
        assert compressed >= len(wanted), "half of them were to be compressed"
        day.chat(end - len(day.said))
        facts += told
        print(f"part {part + 1} of {PARTS}: {len(day.said)} turns in {time.monotonic() - began_s:.0f} s")
    day.stop()

    assert [repeated(request) for request in model.requests if repeated(request)] == []
    began, ended = notices(model.requests, BEGAN), notices(model.requests, ENDED)
    print(*began, *ended, sep="\n")
    assert [len(began), len(ended)] == [2, 2]
    assert ["searches by words only" in text for text in began] == [False, True]
    assert ended == [f"{OUTAGE} turns stored.", "recall searches by meaning again."]
    turns = rows.turns()
    assert [turn.content for turn in turns if turn.role == "user"] == [text for text, _ in day.said]
    assert sorted(turn.content for turn in turns if turn.role == "assistant") == sorted(text for _, text in day.said)
    assert len(day.said) == TURNS
    assert len({turn.session for turn in turns}) == 1


def repeated(request: Request) -> list[str]:
    """The memories before the last turn that stand elsewhere in the request, too."""
    texts = [line.partition("] ")[2] for block in request.recalled for line in block.splitlines() if line[:3] == "- ["]
    everything = "\n".join(str(message["content"]) for message in request.messages)
    return [text for text in texts if everything.count(text) > 1]


def holding(request: Request, fact: Fact) -> list[str]:
    """The messages of a request that tell a fact, one for each time."""
    texts = [str(message["content"]) for message in request.messages]
    return [text for text in texts for _ in range(text.count(fact.place))]


def notices(requests: list[Request], mark: str) -> list[str]:
    """The rest of the line after the mark, for each time that it stands before the last turn of a request."""
    return [
        text.splitlines()[0] for request in requests for block in request.recalled for text in block.split(mark)[1:]
    ]
