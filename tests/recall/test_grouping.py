from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.recall.grouping import (
    FLOOD_MIN,
    FLOOD_SHOWN,
    VARIANTS_MAX,
    Families,
    Found,
    acknowledges,
    newest_first,
)
from hermes_memory_pgvector.recall.selection import comparable
from hermes_memory_pgvector.store.retrieval import Key, Row

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
REPORT = "status of the old bridge: {} welders on site, weather mild, no blockers"
STATEMENTS = [
    "The wiki runs on port 80.", "The wiki runs on port 81.", "The wiki no longer runs on port 81.",
    "The forum runs on port 80.", "The wiki was moved to the attic, port and all.", "It rained.",
    *(REPORT.format(number) for number in range(12)), REPORT.format(7) + ", but for an otter",
]  # fmt: skip


def found(texts: Sequence[str], days: Sequence[int] | None = None) -> list[Found]:
    """Rows of these texts in this order, each so many days after the first; as they come by default."""
    return [
        Found(("t", number), Row("t", number, text, None, NOON + timedelta(days=day), "", "", "memory"))
        for number, (text, day) in enumerate(zip(texts, days or range(len(texts)), strict=True))
    ]


def scores(rows: Sequence[Found]) -> dict[Key, float]:
    return {one.key: 1 - 0.01 * place for place, one in enumerate(rows)}


def told(rows: Sequence[Found]) -> list[tuple[str, str]]:
    """The texts, and that of the row which each one is older than."""
    return [(one.row.content, one.newer.content if one.newer else "") for one in rows]


def without_floods(texts: Sequence[str]) -> list[Found]:
    rows, families = found(texts), Families()
    for one in rows:
        families.add(one.key, comparable(one.row.content))
    return families.without_floods(rows)


def test_a_superseded_row_stands_behind_the_newest_and_is_marked() -> None:
    old, mid, new = "The wiki runs on port 80.", "The wiki runs on port 81.", "The wiki no longer runs on port 81."
    rows = found([old, "It rained.", mid, "The forum runs on port 80.", new])
    assert told(newest_first(rows, scores(rows))) == [
        (new, ""), (mid, new), (old, new), ("It rained.", ""), ("The forum runs on port 80.", ""),
    ]  # fmt: skip


def test_the_time_of_rows_tells_which_is_newer_not_their_order() -> None:
    early, late = "The wiki runs on port 80.", "The wiki runs on port 81."
    for days in ([0, 1], [1, 0]):
        new, old = (late, early) if days == [0, 1] else (early, late)
        rows = found([early, late], days)
        assert told(newest_first(rows, scores(rows))) == [(new, ""), (old, new)]
    rows = found([early, late], [0, 0])
    assert told(newest_first(rows, scores(rows))) == [(early, ""), (late, "")]


def test_a_change_goes_before_an_older_row_that_it_names_if_its_score_is_close() -> None:
    old, new = "We send letters with Postwing.", "Mailings moved to our own relay after the Postwing price hike."
    rows = found(["It rained.", old, new])
    assert told(newest_first(rows, scores(rows))) == [("It rained.", ""), (new, ""), (old, "")]
    assert newest_first(rows, {**scores(rows), rows[2].key: 0.1}) == rows
    rows = found([old, new], [1, 0])
    assert newest_first(rows, scores(rows)) == rows


@given(st.lists(st.tuples(st.sampled_from(STATEMENTS), st.integers(0, 5)), max_size=25))
def test_rows_are_moved_and_marked_but_none_is_lost(drawn: list[tuple[str, int]]) -> None:
    rows = found([text for text, _ in drawn], [day for _, day in drawn])
    ordered = newest_first(rows, scores(rows))
    assert sorted(one.key for one in ordered) == sorted(one.key for one in rows)
    for place, one in enumerate(ordered):
        if one.newer:
            assert one.newer.at > one.row.at
            assert one.newer in [before.row for before in ordered[:place]]


def test_of_a_flood_few_are_shown_with_a_count_and_then_what_differs() -> None:
    odd = REPORT.format(7) + ", but an otter family delayed the scaffold for hours"
    texts = [REPORT.format(number) for number in range(40)]
    shown = without_floods([*texts[:30], "It rained.", *texts[30:], odd])
    assert [one.row.content for one in shown] == [texts[0], odd, *texts[1:FLOOD_SHOWN], "It rained."]
    assert [one.alike for one in shown] == [40 - FLOOD_SHOWN, 0, 0, 0, 0]


def test_few_rows_that_are_near_equal_all_stay() -> None:
    texts = [REPORT.format(number) for number in range(FLOOD_MIN)]
    assert without_floods(texts) == found(texts)


@given(st.lists(st.sampled_from(STATEMENTS), max_size=40))
def test_all_rows_of_a_flood_are_shown_or_counted(texts: list[str]) -> None:
    shown = without_floods(texts)
    assert len(shown) + sum(one.alike for one in shown) == len(texts)
    keys = [one.key for one in shown]
    assert len(set(keys)) == len(keys)
    assert sum(first > second for first, second in pairwise(keys)) <= VARIANTS_MAX


@pytest.mark.parametrize(
    ("text", "whether"),
    [
        ("Noted, I will keep that in mind.", True),
        ("Alles klar, ich merke mir das.", True),
        ("C'est noté, je m'en souviendrai.", True),
        ("收到,我会记住的。", True),
        ("네, 기억해 두겠습니다.", True),
        ("Noted: the port is 5432.", False),
        ("Understood, the review is on Tuesday.", False),
    ],
)
def test_an_answer_of_phrases_alone_is_a_receipt(text: str, whether: bool) -> None:
    assert acknowledges(text) is whether
