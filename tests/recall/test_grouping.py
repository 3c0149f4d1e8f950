from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.model import Hit
from hermes_memory_pgvector.recall.grouping import (
    FLOOD_MIN,
    FLOOD_SHOWN,
    NEWER_AMONG,
    Families,
    Found,
    acknowledges,
    newest_first,
    newest_of_kinds,
)
from hermes_memory_pgvector.store.retrieval import Key, Row
from hermes_memory_pgvector.text.alike import comparable

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
REPORT = "status of the old bridge: {} welders on site, weather mild, no blockers"
STATEMENTS = [
    "The wiki has 80 pages.", "The wiki has 81 pages.", "The wiki no longer has 81 pages.",
    "The forum has 80 pages.", "The wiki was moved to the attic with its pages.", "It rained.",
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


def in_order(texts: Sequence[str], limit: int = 100) -> list[Found]:
    rows, families = found(texts), Families()
    for one in rows:
        families.add(one.key, comparable(one.row.content))
    return families.counted(families.in_order(rows)[:limit])


def test_a_superseded_row_stands_behind_the_newest_and_is_marked() -> None:
    old, mid = "The key hangs in the shed.", "The key now hangs in the barn."
    new = "The key no longer hangs in the barn."
    rows = found([old, "It rained.", mid, "The ladder hangs in the shed.", new])
    assert told(newest_first(rows, scores(rows))) == [
        (new, ""), (mid, new), (old, new), ("It rained.", ""), ("The ladder hangs in the shed.", ""),
    ]  # fmt: skip


def test_the_time_of_rows_tells_which_is_newer_not_their_order() -> None:
    early, late = "The wiki has 80 pages.", "The wiki has 81 pages."
    for days in ([0, 1], [1, 0]):
        new, old = (late, early) if days == [0, 1] else (early, late)
        rows = found([early, late], days)
        assert told(newest_first(rows, scores(rows))) == [(new, ""), (old, new)]
    rows = found([early, late], [0, 0])
    assert told(newest_first(rows, scores(rows))) == [(early, ""), (late, "")]


def test_a_change_goes_before_an_older_row_if_it_is_about_what_is_asked_and_its_score_is_close() -> None:
    query, old, new = "what does the dog eat?", "The dog eats kibble.", "For its kidneys the dog now gets boiled rice."
    rows = found(["It rained.", old, new])
    assert told(newest_first(rows, scores(rows), query)) == [("It rained.", ""), (new, ""), (old, "")]
    assert newest_first(rows, {**scores(rows), rows[2].key: 0.1}, query) == rows
    assert newest_first(rows, scores(rows), "what did the dog eat?") == rows
    assert newest_first(rows, scores(rows), "does the parrot eat?") == rows
    rows = found([old, new], [1, 0])
    assert newest_first(rows, scores(rows), query) == rows
    rows = found([old, *["It rained."] * NEWER_AMONG, new])
    assert newest_first(rows, scores(rows), query) == rows
    rows = found([old, new])
    rows[1] = replace(rows[1], row=rows[1].row._replace(role="assistant"))
    assert newest_first(rows, scores(rows), query) == rows


def test_a_change_in_other_words_goes_first_if_both_rows_are_the_best_and_the_nearest() -> None:
    query, old = "how often is the price list updated?", "The price list is updated every six months."
    new, rain = "Tariffs are now looked at each Monday.", "It rained."
    rows = found([old, new, rain])
    far = {rows[0].key: 0.5, rows[1].key: 0.08, rows[2].key: 0.04}
    near = {rows[0].key: 0.75, rows[1].key: 0.51, rows[2].key: 0.47}

    def ordered(rows: Sequence[Found], cosines: dict[Key, float], query: str = query) -> list[str]:
        return [one.row.content for one in newest_first(rows, far, query, None, cosines)]

    assert ordered(rows, near) == [new, old, rain]
    assert ordered(rows, {}) == [old, new, rain]
    assert ordered(rows, {**near, rows[2].key: 0.52}) == [old, new, rain]
    # In a small scope the second nearest row may have nothing to do with the question.
    assert ordered(rows, {**near, rows[1].key: 0.3, rows[2].key: 0.1}) == [old, new, rain]
    assert ordered(rows, near, "how often did you update the price list?") == [old, new, rain]
    assert ordered(found([old, rain, new]), dict(zip(near, (0.75, 0.47, 0.51), strict=True))) == [old, rain, new]
    assert ordered(found([rain, new, old]), near) == [rain, new, old]
    assert ordered(found([old, f"{new} {rain * 50}", rain]), near)[0] == old


def test_a_change_that_marks_no_row_takes_no_place_from_it_in_a_short_answer() -> None:
    rows, query = found(["The dog eats kibble.", "The dog now gets rice."]), "what does the dog eat?"
    assert newest_first(rows, scores(rows), query, limit=1) == rows
    assert newest_first(rows, scores(rows), query, limit=2) == rows[::-1]


def test_a_turn_marks_an_entry_that_it_supersedes() -> None:
    entry = Hit(id=1, theme="t", content="The key hangs in the shed.", at=NOON, target="memory")
    turn = Hit(
        id=2, theme="t", content="The key no longer hangs in the shed.", at=NOON + timedelta(days=1), role="user"
    )
    other = Hit(id=3, theme="t", content="It rained.", at=NOON, target="memory")
    marked = replace(entry, newer=(2, turn.at))
    assert newest_of_kinds([entry, other, turn]) == [turn, marked, other]
    assert newest_of_kinds([turn, other, entry]) == [turn, other, marked]
    assert newest_of_kinds([entry, replace(turn, target="memory")]) == [entry, replace(turn, target="memory")]
    assert newest_of_kinds([entry, replace(turn, at=NOON)]) == [entry, replace(turn, at=NOON)]


@given(st.lists(st.tuples(st.sampled_from(STATEMENTS), st.integers(0, 5)), max_size=25))
def test_rows_are_moved_and_marked_but_none_is_lost(drawn: list[tuple[str, int]]) -> None:
    rows = found([text for text, _ in drawn], [day for _, day in drawn])
    ordered = newest_first(rows, scores(rows))
    assert sorted(one.key for one in ordered) == sorted(one.key for one in rows)
    for place, one in enumerate(ordered):
        if one.newer:
            assert one.newer.at > one.row.at
            assert one.newer in [before.row for before in ordered[:place]]


def test_what_is_asked_by_its_figure_is_not_replaced() -> None:
    rows = found(["The wiki has 80 pages.", "The wiki has 81 pages."])
    assert told(newest_first(rows, scores(rows), "which wiki has 80 pages?")) == told(rows)
    assert told(newest_first(rows, scores(rows), "how many pages has the wiki?"))[1][1] == "The wiki has 81 pages."


def test_of_a_flood_few_are_shown_with_a_count_and_then_what_differs() -> None:
    odd = REPORT.format(7) + ", but an otter family delayed the scaffold for hours"
    texts = [REPORT.format(number) for number in range(40)]
    shown = in_order([*texts[:30], "It rained.", *texts[30:], odd], limit=6)
    assert [one.row.content for one in shown] == [
        texts[0],
        odd,
        *texts[1:FLOOD_SHOWN],
        "It rained.",
        texts[FLOOD_SHOWN],
    ]
    assert [one.alike for one in shown] == [40 - FLOOD_SHOWN - 1, 0, 0, 0, 0, 0]


def test_few_rows_that_are_near_equal_all_stay_in_their_order() -> None:
    texts = [*(REPORT.format(number) for number in range(FLOOD_MIN)), "It rained."]
    assert in_order(texts) == found(texts)


@given(st.lists(st.sampled_from(STATEMENTS), max_size=40), st.integers(0, 40))
def test_all_rows_of_a_flood_are_shown_or_counted(texts: list[str], limit: int) -> None:
    shown = in_order(texts, limit)
    assert len(shown) == min(limit, len(texts))
    assert len({one.key for one in shown}) == len(shown)
    assert sum(one.alike for one in shown) <= len(texts) - len(shown)
    assert all(one.alike == 0 for one in in_order(texts))


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
