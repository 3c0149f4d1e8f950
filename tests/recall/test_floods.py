"""One origin that writes hundreds of rows about a matter does not fill the block before a turn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from loopback import Endpoint

from hermes_memory_pgvector.model import Hit, Recall, TurnTaken
from hermes_memory_pgvector.recall.origins import Origin, crowding, shared_out
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings

QUESTION = "When does the ferry to Rapperswil sail on Sundays?"
TRUE = (
    "The ferry to Rapperswil sails at nine on Sundays, from pier three.",
    "On weekdays that ferry sails every hour until eight in the evening.",
    "Dogs travel for half the price on the ferry to Rapperswil.",
)
FLOOD = 500
WORDS = [
    "buy",
    "tickets",
    "kiosk",
    "discount",
    "boat",
    "lake",
    "cheap",
    "today",
    "captain",
    "offer",
    "harbour",
    "summer",
    "deck",
    "coffee",
]


@pytest.fixture
def runtime(database: str, endpoint: Endpoint, tmp_path: Path) -> Iterator[Runtime]:
    values = {
        "dsn": database, "embed_url": endpoint.url, "embed_model": "words", "batch_linger_s": 0,
        "also_recall": {"harbour": ["market"]}, "prefetch_budget_s": 7,
    }  # fmt: skip
    running = acquire(Settings(**values), tmp_path)  # type: ignore[arg-type]
    assert running.wait_ready(10)
    yield running
    release(running)


def near_equal(number: int) -> str:
    return f"When does the ferry to Rapperswil sail on Sundays? Ask at kiosk {number} for the ferry to Rapperswil."


def unequal(number: int) -> str:
    chosen = random.Random(number)
    said = " ".join(chosen.sample(WORDS, 8))
    return f"{said}: the ferry to Rapperswil does sail on Sundays when {chosen.choice(WORDS)} {chosen.choice(WORDS)}."


def before_turn(runtime: Runtime) -> list[Hit]:
    return list(runtime.prefetch.before_turn("harbour", QUESTION, "now").hits)


@pytest.mark.parametrize("wording", [near_equal, unequal])
@pytest.mark.parametrize("theme", ["market", "harbour"])
def test_a_flood_leaves_room_for_others(runtime: Runtime, theme: str, wording: Callable[[int], str]) -> None:
    for number, text in enumerate(TRUE):
        assert runtime.accept(TurnTaken(theme="harbour", session_id=f"s{number}", user="", assistant=text))
    for number in range(FLOOD):
        assert runtime.accept(TurnTaken(theme=theme, session_id="flood", user="", assistant=wording(number)))
    assert runtime.writer.flush(60)
    hits = before_turn(runtime)
    assert sum(hit.content in TRUE for hit in hits) >= 2
    assert sum(hit.session_id == "flood" for hit in hits) <= 3


def hit(number: int, *, theme: str = "own", session: str = "", target: str = "") -> Hit:
    at = datetime(2026, 5, 1, tzinfo=UTC)
    return Hit(id=number, theme=theme, content=f"text {number}", at=at, session_id=session, target=target)


def test_an_origin_gets_half_of_the_places_and_what_others_leave() -> None:
    flood = [hit(number, session="f") for number in range(8)]
    others = [hit(number, session=f"s{number}") for number in range(10, 13)]
    entries = [hit(number, target="memory") for number in range(20, 28)]
    ids = [each.id for each in shared_out([*flood, *others], 5, ())]
    assert ids == [0, 1, 2, 10, 11]
    assert [each.id for each in shared_out([*flood, others[0]], 5, ())] == [0, 1, 2, 10, 3]
    assert shared_out(flood, 5, ()) == flood[:5]
    assert shared_out(entries, 5, ()) == entries[:5]
    foreign = [hit(number, theme="market", target="memory") for number in range(30, 38)]
    assert [each.id for each in shared_out([*foreign, *entries], 4, ["market"])] == [30, 31, 20, 21]
    assert shared_out([], 5, ()) == []


def test_only_a_full_answer_of_nearly_one_origin_is_crowded() -> None:
    flood = tuple(hit(number, session="f") for number in range(8))
    rest = tuple(hit(number, session=f"s{number}") for number in range(10, 15))
    assert crowding([Recall(flood)], 10, ()) is None
    assert crowding([Recall(), Recall((*flood, *rest[:2]))], 10, ()) == Origin(session_id="f")
    assert crowding([Recall((*flood[:5], *rest))], 10, ()) is None
    assert crowding([Recall(tuple(hit(n, target="memory") for n in range(10)))], 10, ()) is None
