"""Questions about facts, by their words and by paraphrases of them, to this package and to hermes-memory 0.3.0.

The facts of tests/data/facts.json lie among generated ones about the same sort of things. A question is answered when
its fact is among the first five.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest
from peerrig.peer import Peer
from waiting import wait_for

from hermes_memory_pgvector.facts.notation import parse
from hermes_memory_pgvector.model import Caller, FactWritten
from hermes_memory_pgvector.runtime import acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.tools import toolset

KNOWN: list[dict[str, str]] = json.loads(
    (Path(__file__).parent.parent / "data" / "facts.json").read_text(encoding="utf-8")
)
FACTS = 2000
FIRST = 5
CALLER = Caller(theme="ops")
THINGS = (
    "billing", "shop", "importer", "mailer", "gateway", "scheduler", "archive", "catalogue", "warehouse",
    "ledger", "intranet", "newsletter", "tracker", "crawler", "exporter", "thumbnailer", "translator",
    "forecast", "payroll", "helpdesk", "wiki", "calendar", "chat", "forum", "kiosk", "terminal", "scanner",
    "scale", "fridge", "boiler", "lift", "garage", "bicycle", "van", "trailer", "greenhouse", "workshop",
    "studio", "library", "cellar", "attic", "roof", "harbour",
)  # fmt: skip
SAYS = [
    ("V", "port", "the {thing} listens on port {n}"),
    ("V", "owner", "{name} looks after the {thing}"),
    ("C", "timeout", "a request to the {thing} ends after {n} seconds"),
    ("D", "storage", "the {thing} keeps its files in bucket {thing}-{n}"),
    ("V", "room", "the {thing} stands in room {n}"),
    ("C", "access", "only {name} may change the {thing}"),
    ("D", "restart", "the {thing} restarts every {n} hours"),
    ("V", "version", "the {thing} runs release {n}.{m}"),
    ("C", "limit", "the {thing} takes at most {n} jobs at once"),
    ("D", "review", "{name} decides about the {thing} in week {n}"),
]
NAMES = (
    "Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ines", "Jan", "Kim", "Lea", "Max", "Nora",
    "Otto", "Pia", "Quin", "Rosa", "Sam", "Tom",
)  # fmt: skip


def facts() -> list[str]:
    """The known facts among generated ones, in a random order that is always the same."""
    chance = random.Random(7)
    made = [
        f"{kind}[{thing}.{target}{'' if area == 1 else area}]: "
        + text.format(thing=thing, n=chance.randint(2, 999), m=chance.randint(0, 99), name=chance.choice(NAMES))
        for area, thing, (kind, target, text) in product(range(1, 9), THINGS, SAYS)
    ]
    chosen = [known["fact"] for known in KNOWN] + chance.sample(made, FACTS - len(KNOWN))
    chance.shuffle(chosen)
    return chosen


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_two_hundred_questions_more_are_answered_than_by_the_peer(database: str, tmp_path: Path) -> None:
    every = facts()
    assert len(set(every)) == FACTS
    with Peer(tmp_path) as peer:
        for fact in every:
            assert peer.call("memory_write", content=fact).startswith("stored: ")
        theirs = answered(lambda question: peer.call("memory_search", query=question, limit=FIRST).split("\n"))
    ours = answered_here(database, tmp_path, every)
    print(
        f"of {len(KNOWN)} each: by words {ours[0]} here and {theirs[0]} there, by paraphrase {ours[1]} and {theirs[1]}"
    )
    assert ours[0] >= theirs[0] > len(KNOWN) // 2
    assert ours[1] >= theirs[1] + len(KNOWN) // 2


def answered_here(database: str, home: Path, every: list[str]) -> tuple[int, int]:
    values: dict[str, Any] = {"dsn": database, "tools": "facts", "recall_budget_s": 60, "embed_wait_s": 60}
    runtime = acquire(Settings(**values), home)
    try:
        for text in every:
            fact = parse(text, 400)
            assert runtime.accept(FactWritten(theme="ops", kind=fact.kind, target=fact.target, content=fact.content))
        assert runtime.writer.flush(600)
        with psycopg.connect(database) as connection:
            wait_for(lambda: _lacking(connection) == 0, 300)

        def search(question: str) -> list[str]:
            wanted = {"query": question, "limit": FIRST}
            answer = json.loads(toolset.call(runtime, "memory_search", wanted, CALLER))
            assert answer["degraded"] == []
            return [found["fact"] for found in answer["facts"]]

        return answered(search)
    finally:
        release(runtime)


def _lacking(connection: psycopg.Connection[Any]) -> int:
    with connection.transaction():
        row = connection.execute("select count(*) from facts where embedding is null").fetchone()
    return int(row[0]) if row else 0


def answered(search: Callable[[str], list[str]]) -> tuple[int, int]:
    """How many questions by words, and how many paraphrases, find their fact."""

    def found(kind: str) -> int:
        return sum(any(line.startswith(known["fact"]) for line in search(known[kind])) for known in KNOWN)

    return found("words"), found("question")
