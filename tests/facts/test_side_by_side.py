"""The same calls to the package hermes-memory 0.3.0 and to the tools of this one, and what both leave.

Where both mean the same, a random sequence leaves the same facts. Where they differ, a test shows both, and
docs/facts.md says why.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from loopback import Endpoint
from peerrig.peer import Peer

from hermes_memory_pgvector.model import Caller
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.tools import toolset

SESSION = "s1"
STEPS = 150
MESSAGES = {
    "on": ["how far are we", "please look at the log", "it is not deployed yet", "the tests haven't finished"],
    "end": ["merged", "we deployed it to prod", "great, it works", "phase two complete"],
}
CALLER = Caller(theme="ops", session_id=SESSION)


class Left(NamedTuple):
    """What a sequence leaves: facts that are injected, other ones that hold, and superseded ones; with their scopes."""

    hot: set[tuple[str, str, str, str]]
    cold: set[tuple[str, str, str, str]]
    superseded: Counter[tuple[str, str, str, str]]


@pytest.fixture
def runtime(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Runtime]:
    values = {
        "dsn": database, "embed_url": endpoint.url, "embed_model": "test", "tools": "facts", "batch_linger_s": 0,
        "write_wait_s": 20, "recall_budget_s": 20,
    }  # fmt: skip
    runtime = acquire(Settings(**values), tmp_path)  # type: ignore[arg-type]
    yield runtime
    release(runtime)


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    with Peer(tmp_path) as peer:
        yield peer


@pytest.fixture
def both(runtime: Runtime, peer: Peer) -> Callable[..., tuple[dict[str, Any], str]]:
    """Call a tool of both, and return what they answer."""

    def call(name: str, **arguments: Any) -> tuple[dict[str, Any], str]:
        ours = json.loads(toolset.call(runtime, name, {"session_id": SESSION, **arguments}, CALLER))
        return ours, peer.call(name, session_id=SESSION, **arguments)

    return call


def ours(runtime: Runtime) -> Left:
    query = """
        select f.kind, f.target, f.scope, f.content, f.status, s.closed_at is null
        from facts f left join fact_scopes s on s.agent_identity = f.agent_identity and s.label = f.scope"""
    with psycopg.connect(runtime.database.dsn) as connection:
        return _left(connection.execute(query.encode()).fetchall())


def theirs(peer: Peer) -> Left:
    return _left(peer.facts())


def _left(rows: list[Any]) -> Left:
    def chosen(wanted: Callable[[str, bool], bool]) -> list[tuple[str, str, str, str]]:
        return [(kind, target, scope, content) for kind, target, scope, content, *state in rows if wanted(*state)]

    return Left(
        set(chosen(lambda status, is_open: status == "active" and is_open)),
        set(chosen(lambda status, is_open: status == "cold" or (status == "active" and not is_open))),
        Counter(chosen(lambda status, _: status == "superseded")),
    )


class Sequence:
    """A random sequence of calls in which both packages mean the same.

    One scope is open at a time, every fact names its scope, a target is not written again once its scope has closed,
    and a repeat follows its fact at once.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.scope, self._scopes, self._turn, self._silent, self._said = "", 0, 0, 0, 0

    def calls(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for _ in range(STEPS):
            match self._random.choices(("write", "tick", "end", "purge"), (8, 3, 1, 1))[0]:
                case "write":
                    yield from self._write()
                case "tick":
                    for _ in range(self._random.choice((1, 1, 2, 7))):
                        yield self._tick("on")
                case "end" if self.scope:
                    if self._random.random() < 0.5:
                        yield self._tick("end")
                    else:
                        yield "memory_write", {"content": "✓[work]: done", "scope": self.scope}
                    self.scope = ""
                case "purge":
                    scope = {"scope": self.scope} if self.scope and self._random.random() < 0.5 else {}
                    days = {"older_than_days": 30} if self._random.random() < 0.5 else {}
                    yield "memory_purge", {**scope, **days}

    def _write(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if not self.scope:
            self._scopes += 1
            self.scope = f"work {self._scopes}"
        self._said, self._silent = self._said + 1, 0
        kind, target = self._random.choice("CDV?"), self._random.choice(("db", "auth", "srv.prod", "缓存"))
        arguments = {"content": f"{kind}[{target}]: number {self._said}", "scope": self.scope}
        for _ in range(self._random.choice((1, 1, 1, 2))):
            yield "memory_write", arguments

    def _tick(self, sort: str) -> tuple[str, dict[str, Any]]:
        self._turn, self._silent = self._turn + 1, self._silent + 1
        if self._silent >= 6:
            self.scope = ""
        return "memory_tick", {"turn": self._turn, "message": self._random.choice(MESSAGES[sort])}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_the_same_calls_leave_the_same_facts(
    both: Callable[..., tuple[dict[str, Any], str]], runtime: Runtime, peer: Peer, seed: int
) -> None:
    seen: Counter[str] = Counter()
    for name, arguments in Sequence(seed).calls():
        if name == "memory_purge":
            answer = json.loads(toolset.call(runtime, name, arguments, CALLER))
            assert f"purged: {answer['purged']} fact" in peer.call(name, **arguments)
            seen["purged"] += answer["purged"]
        else:
            answer, told = both(name, **arguments)
            assert "error" not in answer
            seen["superseded"] += "superseded" in answer
            assert ("superseded: " in told) == ("superseded" in answer), (arguments, answer, told)
            seen["closed"] += bool(answer.get("closed"))
            assert ("cooled: " in told) == bool(answer.get("closed")), (arguments, answer, told)
    left, there = ours(runtime), theirs(peer)
    assert left == there
    assert len(left.hot) + len(left.cold) > 20
    assert min(seen["superseded"], seen["purged"], seen["closed"]) > 0


# --- where they differ


def test_a_fact_without_a_scope_opens_the_closed_scope_of_its_session_again(
    both: Callable[..., tuple[dict[str, Any], str]], runtime: Runtime, peer: Peer
) -> None:
    both("memory_write", content="V[port]: 1", scope="login")
    both("memory_tick", turn=1, message="merged")
    both("memory_write", content="V[lamp]: on")
    assert ours(runtime).hot == {("V", "lamp", "login", "on")}
    assert theirs(peer).hot == set(), "it is in the closed scope, and nobody is told of it"


def test_what_is_obsolete_is_superseded_whatever_kind_it_had(
    both: Callable[..., tuple[dict[str, Any], str]], runtime: Runtime, peer: Peer
) -> None:
    both("memory_write", content="D[queue]: RabbitMQ", scope="jobs")
    both("memory_write", content="~[queue]: no broker any more", scope="jobs")
    assert ours(runtime).hot == {("obs", "queue", "jobs", "no broker any more")}
    assert theirs(peer).hot == {("D", "queue", "jobs", "RabbitMQ"), ("obs", "queue", "jobs", "no broker any more")}


def test_the_same_text_in_another_scope_is_a_fact_of_that_scope(
    both: Callable[..., tuple[dict[str, Any], str]], runtime: Runtime, peer: Peer
) -> None:
    for scope in ("api", "worker"):
        both("memory_write", content="V[port]: 3005", scope=scope)
    assert {fact[2] for fact in ours(runtime).hot} == {"api", "worker"}
    assert {fact[2] for fact in theirs(peer).hot} == {"api"}, "scope worker is open and empty"


def test_a_cold_fact_is_superseded_too(
    both: Callable[..., tuple[dict[str, Any], str]], runtime: Runtime, peer: Peer
) -> None:
    both("memory_write", content="V[port]: 1", scope="login")
    both("memory_write", content="✓[login]: merged", scope="login")
    both("memory_write", content="V[port]: 2", scope="login")
    assert [fact for fact in ours(runtime).hot | ours(runtime).cold if fact[1] == "port"] == [
        ("V", "port", "login", "2")
    ]
    found = peer.call("memory_search", query="port")
    assert "V[port]: 1" in found, "two values hold at once"


def test_a_longer_fact_is_refused_and_not_cut(
    both: Callable[..., tuple[dict[str, Any], str]], runtime: Runtime, peer: Peer
) -> None:
    answer, told = both("memory_write", content=f"V[essay]: {'word ' * 100}end")
    assert "it may have 400" in answer["error"]
    assert ours(runtime) == Left(set(), set(), Counter())
    assert "[truncated]" in told
    ((*_, content),) = theirs(peer).hot
    assert content.endswith("…")


def test_a_scope_that_was_left_for_another_closes_after_three_turns(
    both: Callable[..., tuple[dict[str, Any], str]],
) -> None:
    both("memory_write", content="V[a]: 1", scope="one")
    both("memory_write", content="V[b]: 1", scope="two")
    answers = [both("memory_tick", turn=turn) for turn in range(1, 7)]
    assert [answer["closed"] for answer, _ in answers] == [[], [], ["one"], [], [], ["two"]]
    assert ["cooled" in told for _, told in answers] == [False] * 5 + [True], "its facts are among the last 15 targets"


def test_a_repeat_counts_as_work_on_its_scope(both: Callable[..., tuple[dict[str, Any], str]]) -> None:
    both("memory_write", content="V[a]: 1", scope="one")
    for turn in range(1, 6):
        both("memory_tick", turn=turn)
    both("memory_write", content="V[a]: 1", scope="one")
    answer, told = both("memory_tick", turn=6)
    assert (answer["closed"], "cooled" in told) == ([], True)


def test_an_unknown_scope_has_no_facts(
    both: Callable[..., tuple[dict[str, Any], str]], runtime: Runtime, peer: Peer
) -> None:
    both("memory_write", content="V[port]: 3005", scope="api")
    wanted = {"query": "port", "scope": "no such scope"}
    answer, told = (
        json.loads(toolset.call(runtime, "memory_search", wanted, CALLER)),
        peer.call("memory_search", **wanted),
    )
    assert (answer["facts"], "3005" in told) == ([], True)


def test_other_sentences_close_a_scope(both: Callable[..., tuple[dict[str, Any], str]]) -> None:
    both("memory_write", content="V[port]: 3005", scope="api")
    for turn, message in enumerate(("is it deployed?", "when it's merged, tell me", "noch nicht gemergt"), 1):
        answer, told = both("memory_tick", turn=turn, message=message)
        if turn == 1:
            assert (answer["closed"], "cooled: api" in told) == ([], True)
    answer, _ = both("memory_tick", turn=4, message="gemergt, danke")
    assert answer["closed"] == ["api"]


def test_a_full_memory_takes_facts(runtime: Runtime, peer: Peer) -> None:
    for number in range(30):
        content = f"V[lamp{number}]: {'x' * 390}{number}"
        assert json.loads(toolset.call(runtime, "memory_write", {"content": content}, CALLER))["status"] == "stored"
        peer.call("memory_write", content=content)
    left = ours(runtime)
    assert len(left.hot) + len(left.cold) == 30
    assert left.cold, "the longest unused ones become cold"
