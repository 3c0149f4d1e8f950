from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from candidates import Candidate, as_arrays
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_memory_pgvector.model import Period
from hermes_memory_pgvector.recall import fusion
from hermes_memory_pgvector.recall.fusion import (
    CONTEXT_SHARE,
    NEIGHBOUR_SHARE,
    OUTSTANDING_DEVIATIONS,
    OUTSTANDING_SHARE,
    STEPS,
    USUAL_RANK,
    VECTOR_WEIGHT,
    Span,
    span_of,
)
from hermes_memory_pgvector.recall.word_search import LENGTH, LENGTHS_MAX, brevity

similarities = st.none() | st.floats(-1, 1)
words = st.dictionaries(st.sampled_from("xyz"), st.floats(0, 50), max_size=3)
MOST = 1 + 2 * NEIGHBOUR_SHARE * sum(1 / 2**step for step in range(STEPS))


def fuse(rows: Iterable[Candidate], span: tuple[float, ...] | None = None, reachable: float = 0.0) -> dict[Any, float]:
    return fusion.fuse(as_arrays(rows, reachable), span=Span(*span) if span else None)


@st.composite
def sessions(draw: st.DrawFn) -> list[Candidate]:
    """Rows of some sessions; a row names the one before it, which may not have been found."""
    rows: list[Candidate] = []
    for _ in range(draw(st.integers(0, 4))):
        previous = None
        for _ in range(draw(st.integers(1, 5))):
            key = 10 * len(rows) + 1
            rows.append(Candidate(key, draw(similarities), draw(words), previous))
            previous = key if draw(st.booleans()) else key + 5
    return rows


@given(sessions(), st.none() | st.lists(st.floats(-1, 1), min_size=4, max_size=4).map(sorted), st.floats(0, 200))
@example([Candidate(1, 1.0, {}, None)], [0.0, 0.0, 0.0, 2.2250738585e-313], 0.0)
def test_scores_are_between_nothing_and_one_and_in_order(
    rows: list[Candidate], span: list[float] | None, reachable: float
) -> None:
    low, usual, high, outstanding = span or [0.0] * 4
    scores = fuse(rows, span=(low, high, usual, outstanding) if span else None, reachable=reachable)
    assert set(scores) == {row.key for row in rows}
    assert all(0 <= score <= 1 for score in scores.values())
    assert all(first >= second for first, second in pairwise(scores.values()))


@given(sessions(), st.randoms())
def test_the_order_does_not_depend_on_who_came_first(rows: list[Candidate], chance: random.Random) -> None:
    shuffled = rows.copy()
    chance.shuffle(shuffled)
    first, second = fuse(rows), fuse(shuffled)
    assert first.keys() == second.keys()
    assert all(math.isclose(first[key], second[key], abs_tol=1e-12) for key in first)
    assert list(fuse(rows)) == list(first)


@given(st.lists(st.tuples(similarities, words), min_size=1, max_size=8), st.integers(0, 7), st.floats(0.01, 1))
def test_a_row_that_gains_in_either_leg_does_not_fall(
    rows: list[tuple[float | None, dict[str, float]]], chosen: int, gain: float
) -> None:
    chosen %= len(rows)
    before = [Candidate(n, similarity, held) for n, (similarity, held) in enumerate(rows)]
    similarity, held = rows[chosen]
    more = Candidate(chosen, min(1.0, similarity + gain) if similarity is not None else None, held | {"new": gain})
    after = [more if row.key == chosen else row for row in before]
    for span in ((-1.0, 1.0), (-1.0, 1.0, 0.0, 0.8)):
        assert list(fuse(after, span=span)).index(chosen) <= list(fuse(before, span=span)).index(chosen)


def test_nothing_gives_nothing() -> None:
    assert fuse([]) == {}


@pytest.mark.parametrize(
    ("similarity", "held", "own"),
    [
        (0.4, {"x": 3.0}, 1.0),
        (0.4, {}, VECTOR_WEIGHT),
        (None, {"x": 3.0}, 1 - VECTOR_WEIGHT),
        (None, {}, 0.0),
    ],
)
def test_a_single_candidate_is_as_good_as_its_legs(
    similarity: float | None, held: dict[str, float], own: float
) -> None:
    assert fuse([Candidate("a", similarity, held)]) == {"a": pytest.approx(own / MOST)}


def test_without_vectors_the_words_decide() -> None:
    scores = fuse([Candidate("a", None, {"x": 1.0}), Candidate("b", None, {"x": 1.0, "y": 3.0})])
    assert list(scores) == ["b", "a"]
    assert scores["b"] == pytest.approx(4 * scores["a"])


def test_without_words_the_meaning_decides() -> None:
    scores = fuse([Candidate("a", 0.70), Candidate("b", 0.90), Candidate("c", 0.80), Candidate("d", None)])
    assert list(scores) == ["b", "c", "a", "d"]
    assert scores["c"] == pytest.approx(scores["b"] / 2)
    assert scores["d"] == 0


def test_a_row_with_all_the_words_comes_before_the_nearest_and_one_with_a_weak_word_does_not() -> None:
    nearest, worded = Candidate("nearest", 0.9), Candidate("worded", 0.5, {"office": 10.0})
    assert list(fuse([nearest, worded], reachable=10.0)) == ["worded", "nearest"]
    assert list(fuse([nearest, worded], reachable=100.0)) == ["nearest", "worded"]


def test_a_row_that_stands_out_comes_before_one_with_some_words_and_after_one_with_all() -> None:
    def order(held: float, outstanding: float = 0.6) -> list[str]:
        rows = [Candidate("nearest", 0.6), Candidate("worded", 0.5, {"office": held})]
        return list(fuse(rows, span=(0.1, 0.6, 0.2, outstanding), reachable=10.0))

    assert order(2.0) == ["nearest", "worded"]
    assert order(10.0) == ["worded", "nearest"]
    # The others are nearly as near.
    assert order(2.0, outstanding=3.0) == ["worded", "nearest"]


def test_what_stands_out_counts_as_a_share_of_the_words_that_no_row_holds() -> None:
    rows = [Candidate("a", 0.6), Candidate("b", 0.2, {"x": 4.0}), Candidate("c", 0.4)]
    scores = fuse(rows, span=(0.2, 0.6, 0.2, 0.6), reachable=10.0)
    words = (1 - VECTOR_WEIGHT) / MOST
    assert scores["a"] == pytest.approx(VECTOR_WEIGHT / MOST + words * OUTSTANDING_SHARE * 0.6)
    assert scores["b"] == pytest.approx(words * 0.4)
    # Half as far above what is usual, it gets a quarter.
    assert scores["c"] == pytest.approx(VECTOR_WEIGHT / MOST / 2 + words * OUTSTANDING_SHARE * 0.6 / 4)


def test_a_long_row_that_holds_all_the_words_leaves_nothing_to_what_stands_out() -> None:
    rows = [Candidate("nearest", 0.6), Candidate("long", 0.3, {"x": 3.0}, length=90 * LENGTH)]
    weight = 3.0 / brevity(np.array([90 * LENGTH]), ["x"])[0]
    scores = fuse(rows, span=(0.3, 0.6, 0.3, 0.6), reachable=weight)
    assert list(scores) == ["long", "nearest"]
    assert scores["nearest"] == pytest.approx(VECTOR_WEIGHT / MOST)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=200), st.integers(1, 10_000))
def test_the_span_holds_all_cosines_and_few_are_more_than_usual(cosines: list[float], rows: int) -> None:
    span = span_of(cosines, rows)
    assert span is not None
    assert (span.low, span.high) == (min(cosines), max(cosines))
    assert span.usual < span.outstanding or span.usual == math.inf
    assert sum(cosine > span.usual for cosine in cosines) < USUAL_RANK


@pytest.mark.parametrize("rows", [40, 300, 2000, 100_000])
def test_the_deviation_is_that_of_all_rows_though_only_the_nearest_are_known(rows: int) -> None:
    chance = np.random.default_rng(7)
    found, tops = [], []
    for _ in range(200):
        cosines = np.sort(chance.normal(0.2, 0.08, rows))[::-1][:100]
        span = span_of(cosines.tolist(), rows)
        assert span is not None
        found.append((span.outstanding - span.usual) / OUTSTANDING_DEVIATIONS)
        tops.append((cosines[0] - span.usual) / (span.outstanding - span.usual))
    assert np.median(found) == pytest.approx(0.08, rel=0.15)
    # Where no row has to do with the question, the nearest one rarely counts as if it held much of it.
    assert np.mean(np.array(tops) > 0.5) < 0.25
    assert np.mean(np.array(tops) > 0.8) < 0.03


def test_of_few_rows_and_of_equal_ones_none_stands_out() -> None:
    assert span_of([], 0) is None
    for cosines in ([0.4], [0.4, 0.3], [0.4] * 50, [0.9, *([0.1] * 38)], [0.4 + 1e-8 * (n % 7) for n in range(95)]):
        span = span_of(cosines, 50)
        assert span is not None
        above = (max(cosines) - span.usual) / (span.outstanding - span.usual) if span.usual < math.inf else 0
        assert above < 0.01


@given(st.floats(0.1, 50), st.floats(1, 100))
def test_words_count_by_the_share_of_the_question_that_a_row_holds(held: float, times: float) -> None:
    scores = fuse([Candidate("a", None, {"x": held}), Candidate("b", None, {"x": held / 2})], reachable=times * held)
    assert scores["a"] == pytest.approx((1 - VECTOR_WEIGHT) / times / MOST)
    assert scores["b"] == pytest.approx(scores["a"] / 2)


def session(*rows: tuple[float, dict[str, float]]) -> list[Candidate]:
    """The rows of one session in their order."""
    return [Candidate(n, similarity, held, n - 1 if n else None) for n, (similarity, held) in enumerate(rows)]


def test_a_row_lends_a_share_of_its_score_that_halves_with_each_step() -> None:
    silent: tuple[float, dict[str, float]] = (0.0, {})
    scores = fuse(session(silent, (1.0, {}), silent, silent, silent, silent), span=(0, 1))
    assert scores[0] == scores[2] == pytest.approx(NEIGHBOUR_SHARE * scores[1])
    assert (scores[3], scores[4]) == (pytest.approx(scores[2] / 2), pytest.approx(scores[2] / 4))
    assert scores[5] == 0


def test_a_row_is_found_by_the_words_that_its_neighbour_holds() -> None:
    answer = fuse([*session((0.0, {"x": 2.0}), (0.0, {"y": 2.0})), Candidate(9, 0.0, {"y": 2.0})])
    assert answer[1] > answer[9] > 0
    # A word that a row holds itself is worth no more because a neighbour holds it, too.
    alone, together = Candidate(9, 0.0, {"x": 2.0}), session((0.0, {"x": 2.0}), (0.0, {"x": 2.0}))
    both = fuse([*together, alone])
    assert both[1] == pytest.approx((1 + NEIGHBOUR_SHARE) * both[9])
    assert 0 < CONTEXT_SHARE < 1


@pytest.mark.parametrize(
    ("length", "times"), [(LENGTH // 2, 1), (LENGTH, 1), (3 * LENGTH, 3), (90 * LENGTH, LENGTHS_MAX)]
)
def test_a_long_row_gets_less_from_its_neighbours(length: int, times: float) -> None:
    held = {"x": 2.0}
    near = [Candidate(1, 1.0, held), Candidate(2, 0.0, {}, 1, length)]
    scores = fuse([*near, Candidate(3, 1.0, held)], span=(0, 1), reachable=2.0)
    words = (1 - VECTOR_WEIGHT) * CONTEXT_SHARE / times
    assert scores[2] == pytest.approx((words + NEIGHBOUR_SHARE / times) / MOST)


def test_a_previous_row_that_is_no_candidate_changes_nothing() -> None:
    held = {"x": 1.0}
    assert fuse([Candidate(1, 0.5, held, previous=99)], span=(0, 1)) == fuse([Candidate(1, 0.5, held)], span=(0, 1))


def test_a_neighbour_that_is_nearer_than_the_near_leg_found_scores_no_more_than_the_nearest() -> None:
    scores = fuse([Candidate("a", 0.90), Candidate("b", 0.80), Candidate("c", 0.99)], span=(0.80, 0.90))
    assert scores["c"] == scores["a"]


def test_the_span_of_the_near_leg_keeps_poor_neighbours_from_stretching_the_scale() -> None:
    near = [Candidate("a", 0.90), Candidate("b", 0.80)]
    scores = fuse([*near, Candidate("neighbour", 0.1)], span=(0.80, 0.90))
    assert scores["b"] == scores["neighbour"] == 0
    assert fuse(near, span=(0.80, 0.90))["a"] == scores["a"]


def test_rows_of_another_time_than_that_of_the_question_count_half() -> None:
    rows = as_arrays(Candidate(number, 0.5, {"kelp": 1.0 + number / 10}) for number in range(3))
    dated = replace(rows, times=np.array([100.0, 200.0, 300.0]))
    usual = fusion.fuse(dated)
    period = Period(datetime.fromtimestamp(200, UTC), datetime.fromtimestamp(300, UTC), "then")
    scores: dict[Any, float] = fusion.fuse(dated, period=period)
    assert list(scores) == [1, 2, 0]
    assert [scores[number] / usual[number] for number in range(3)] == pytest.approx([0.5, 1, 0.5])


def test_equal_scores_keep_the_order_of_their_keys() -> None:
    assert list(fuse([Candidate(key, 0.5, {"x": 1.0}) for key in ("c", "a", "b")])) == ["a", "b", "c"]
