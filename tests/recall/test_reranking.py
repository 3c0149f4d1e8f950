"""Recall with a re-ranker: a server process orders the hits anew, or is left out with a word about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerankers import Server, serving
from waiting import wait_for

from hermes_memory_pgvector.model import Add, Event, Hit, Recall, RecallRequest, Scope, TurnTaken, now
from hermes_memory_pgvector.recall.recaller import Recaller, build
from hermes_memory_pgvector.recall.reranking import RerankingRecaller, best, grouped, scored
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import rows
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.tools import answers

TEXTS = [
    "the pump in the cellar is loud, says the plumber 0",
    "pump, loud 1",
    "a loud pump ! was sold 2",
    "the cat sleeps 3",
]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OPS = Scope("ops", ("ops",))


@pytest.fixture
def start(database: str, tmp_path: Path) -> Iterator[Callable[..., tuple[Any, Server]]]:
    said: list[Event] = [TurnTaken(theme="ops", session_id=text, user=text, assistant="") for text in TEXTS]
    saved: list[Event] = [Add(theme="ops", home="home", target="memory", content=text) for text in TEXTS]
    with closing(Database(Settings(dsn=database), tmp_path)) as store, store.transaction(20, 60) as connection:
        rows.apply(connection, [prepare(event) for event in said + saved])
    with ExitStack() as ending:

        def begin(**changed: Any) -> tuple[Any, Server]:
            server = ending.enter_context(serving("vllm"))
            settings = Settings(dsn=database, **{"rerank_url": server.url, "rerank_model": "m", **changed})
            store = Database(settings, tmp_path)
            ending.callback(store.close)
            made = build(store, lambda: "no embedder", settings)
            ending.callback(made.close)
            return made, server

        yield begin


def asked(limit: int = 3, budget_s: float = 20) -> RecallRequest:
    return RecallRequest(query="which pump is loud", scope=OPS, limit=limit, budget_s=budget_s)


def numbers(hits: tuple[Hit, ...]) -> list[int]:
    return [int(hit.content.split()[-1]) for hit in hits]


def test_the_re_ranker_orders_the_hits_and_the_answer_shows_its_scores(start: Callable[..., Any]) -> None:
    memory, _ = start()
    plain = memory._recaller.recall("turns", asked())
    for recall in memory.recall_each(("entries", "turns"), asked()):
        assert numbers(recall.hits) == [2, 0, 1]
        assert numbers(recall.hits) != numbers(plain.hits)
        assert [hit.score for hit in recall.hits] == sorted((hit.score for hit in recall.hits), reverse=True)
        assert all(hit.relevance is not None for hit in recall.hits)
        assert recall.degraded == ("no embedder",)
    # More hits are re-ranked than are asked for.
    assert numbers(memory.recall("turns", asked(limit=1)).hits) == [2]
    answer = answers.of_recall(memory.recall("turns", asked()), query="pump", scope="current", chars_max=20_000)
    assert answer["hits"][0]["why"]["relevance"] > answer["hits"][1]["why"]["relevance"]


@pytest.mark.parametrize("mode", ["hang", "503"])
def test_a_re_ranker_that_does_not_work_leaves_the_order_and_is_named(start: Callable[..., Any], mode: str) -> None:
    memory, server = start()
    plain = memory._recaller.recall("turns", asked(2))
    server.tell(mode)
    recall = memory.recall("turns", asked(2, budget_s=1))
    assert recall.hits == plain.hits
    assert recall.degraded[-1].startswith("not re-ranked: ")


def test_a_re_ranker_that_is_down_is_not_asked_for_a_while_and_then_again(start: Callable[..., Any]) -> None:
    memory, server = start()
    memory.recall("turns", asked())
    server.tell("503")
    while "no request is sent" not in memory.recall("turns", asked()).degraded[-1]:
        pass
    assert len(server.tell("well")) <= 3
    wait_for(lambda: numbers(memory.recall("turns", asked()).hits) == [2, 0, 1])


def test_a_wrong_setting_degrades_each_recall_and_raises_nothing(start: Callable[..., Any]) -> None:
    memory, _ = start(rerank_key_env="NO_SUCH_VARIABLE")
    for _ in range(2):
        recall = memory.recall("turns", asked(2))
        assert len(recall.hits) == 2
        assert "NO_SUCH_VARIABLE" in recall.degraded[-1]


def test_without_an_address_nothing_is_re_ranked(database: str, tmp_path: Path) -> None:
    settings = Settings(dsn=database)
    store = Database(settings, tmp_path)
    assert isinstance(build(store, lambda: "no embedder", settings), Recaller)
    store.close()


hits = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20)


@given(hits, st.integers(1, 20))
def test_the_best_relevances_come_first_and_equal_ones_keep_their_order(relevances: list[float], limit: int) -> None:
    given_hits = [Hit(id=number, theme="t", content="c", at=now()) for number in range(len(relevances))]
    found = best(scored(given_hits, relevances))[:limit]
    wanted = sorted(range(len(relevances)), key=lambda place: -relevances[place])[:limit]
    assert [hit.relevance for hit in found] == [relevances[place] for place in wanted]
    assert all(0 <= hit.score <= 1 for hit in found)


def ranked(texts: list[str]) -> list[Hit]:
    """Hits of these texts, each later than the next one."""
    return [
        Hit(id=number, theme="t", content=text, at=NOON - timedelta(days=number), score=1 - number / 100)
        for number, text in enumerate(texts)
    ]


class Found:
    """A recaller that has found these hits."""

    def __init__(self, *hits: Hit) -> None:
        self.hits = hits

    def recall_each(self, kinds: Sequence[str], request: RecallRequest) -> list[Recall]:
        return [Recall(self.hits[: request.limit]) for _ in kinds]


def test_pointers_are_not_sent_and_take_no_places() -> None:
    row = Hit(id=0, theme="ops", content="", at=NOON, target="memory")
    found = [replace(row, id=number, content=text) for number, text in enumerate(TEXTS)]
    pointer = replace(row, id=9, content="the page says that each pump is loud", withheld="third parties", pointer=True)
    with serving("vllm") as server:
        settings = Settings(rerank_url=server.url, rerank_model="m")
        memory = RerankingRecaller(Found(pointer, *found, pointer), settings)  # type: ignore[arg-type]
        [recall] = memory.recall_each(("entries",), asked())
        assert [hit.id for hit in recall.hits] == [2, 0, 1, 9, 9]
        alone = RerankingRecaller(Found(pointer), settings)  # type: ignore[arg-type]
        assert alone.recall_each(("entries",), asked())[0].hits == (pointer,)
        assert server.tell("well") == [len(TEXTS)]
        memory.close()


def test_a_superseded_hit_stays_behind_the_newer_one() -> None:
    new, other, old, older = ranked(["it hangs in the barn now", "rain", "it hangs in the shed", "it hung in the tree"])
    old, older = replace(old, newer=(new.id, new.at)), replace(older, newer=(old.id, old.at))
    found = grouped([older, other, old, new], 3)
    assert [hit.id for hit in found] == [new.id, old.id, older.id]
    assert [hit.score for hit in found] == [1.0, 0.98, 0.97]
    lifted = grouped([other, old, replace(new, score=0.1)], 3)
    assert [hit.score for hit in lifted] == [0.99, 0.98, 0.98]
    assert [hit.id for hit in grouped([older, other], 3)] == [older.id, other.id]


def test_a_flood_does_not_fill_a_re_ranked_answer_and_is_counted() -> None:
    hits = ranked([*(f"status of the old bridge: {number} welders on site" for number in range(9)), "the otter came"])
    found = grouped([replace(hits[0], alike=20), *hits[1:]], 5)
    assert [hit.id for hit in found] == [0, 1, 2, 9, 3]
    assert [hit.score for hit in found] == [1.0, 0.99, 0.98, 0.91, 0.0]
    assert [hit.alike for hit in found] == [25, 0, 0, 0, 0]
    assert grouped(hits[:3], 3) == tuple(hits[:3])


@given(st.lists(st.sampled_from(TEXTS), max_size=20), st.integers(1, 20))
def test_grouping_loses_no_hit(texts: list[str], limit: int) -> None:
    hits = ranked(texts)
    found = grouped(hits, limit)
    assert len(found) == min(limit, len(hits))
    assert {hit.id for hit in found} <= {hit.id for hit in hits}
