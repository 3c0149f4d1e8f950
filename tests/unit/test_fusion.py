from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.fusion import MEANING_WEIGHT, NEIGHBOUR_SHARE, Candidate, fuse

similarities = st.none() | st.floats(-1, 1)
words = st.just(0.0) | st.floats(0, 50)


@st.composite
def sessions(draw: st.DrawFn) -> list[Candidate[int]]:
    """Rows of some sessions; a row names the one before it, which may not have been found."""
    rows: list[Candidate[int]] = []
    for _ in range(draw(st.integers(0, 4))):
        previous = None
        for _ in range(draw(st.integers(1, 5))):
            key = 10 * len(rows) + 1
            rows.append(Candidate(key, draw(similarities), draw(words), previous))
            previous = key if draw(st.booleans()) else key + 5
    return rows


@given(sessions(), st.none() | st.tuples(st.floats(-1, 0.3), st.floats(0.3, 1)))
def test_scores_are_between_nothing_and_one_and_in_order(
    rows: list[Candidate[int]], span: tuple[float, float] | None
) -> None:
    scores = fuse(rows, span=span)
    assert set(scores) == {row.key for row in rows}
    assert all(0 <= score <= 1 for score in scores.values())
    assert all(first >= second for first, second in pairwise(scores.values()))


@given(sessions(), st.randoms())
def test_the_order_does_not_depend_on_who_came_first(rows: list[Candidate[int]], chance: random.Random) -> None:
    shuffled = rows.copy()
    chance.shuffle(shuffled)
    first, second = fuse(rows), fuse(shuffled)
    assert first.keys() == second.keys()
    assert all(math.isclose(first[key], second[key], abs_tol=1e-12) for key in first)
    assert list(fuse(rows)) == list(first)


@given(st.lists(st.tuples(similarities, words), max_size=8), st.integers(0, 7), st.floats(0.01, 1))
def test_a_row_that_gains_in_either_leg_does_not_fall(
    rows: list[tuple[float | None, float]], chosen: int, gain: float
) -> None:
    if not rows:
        return
    chosen %= len(rows)
    before = [Candidate(n, similarity, word) for n, (similarity, word) in enumerate(rows)]
    similarity, word = rows[chosen]
    more = Candidate(chosen, min(1.0, similarity + gain) if similarity is not None else None, word + gain)
    after = [more if row.key == chosen else row for row in before]
    span = (-1.0, 1.0)
    assert list(fuse(after, span=span)).index(chosen) <= list(fuse(before, span=span)).index(chosen)


def test_nothing_gives_nothing() -> None:
    assert fuse([]) == {}


@pytest.mark.parametrize(
    ("similarity", "word", "own"), [(0.4, 3.0, 1.0), (0.4, 0.0, 0.5), (None, 3.0, 0.5), (None, 0.0, 0.0)]
)
def test_a_single_candidate_is_as_good_as_its_legs(similarity: float | None, word: float, own: float) -> None:
    assert fuse([Candidate("a", similarity, word)]) == {"a": pytest.approx(own / (1 + 2 * NEIGHBOUR_SHARE))}


def test_without_vectors_the_words_decide() -> None:
    scores = fuse([Candidate("a", None, 1.0), Candidate("b", None, 4.0), Candidate("c", None, 2.0)])
    assert list(scores) == ["b", "c", "a"]
    assert scores["b"] == pytest.approx(4 * scores["a"])


def test_without_words_the_meaning_decides() -> None:
    scores = fuse([Candidate("a", 0.70), Candidate("b", 0.90), Candidate("c", 0.80), Candidate("d", None)])
    assert list(scores) == ["b", "c", "a", "d"]
    assert scores["c"] == pytest.approx(scores["b"] / 2)
    assert scores["d"] == 0


def test_both_legs_count_the_same() -> None:
    scores = fuse([Candidate("meaning", 1.0), Candidate("words", None, 9.0), Candidate("none", 0.0)])
    assert scores["meaning"] == scores["words"] > scores["none"]
    assert MEANING_WEIGHT == 0.5


def test_neighbours_give_each_other_a_share() -> None:
    alone = fuse([Candidate(1, 0.0), Candidate(2, 1.0), Candidate(3, 0.0)], span=(0, 1), share=0.25)
    beside = fuse([Candidate(1, 0.0), Candidate(2, 1.0, 0.0, 1), Candidate(3, 0.0, 0.0, 2)], span=(0, 1), share=0.25)
    assert (alone[1], alone[3]) == (0, 0)
    assert beside[1] == beside[3] == pytest.approx(0.25 * beside[2])
    without = fuse([Candidate(1, 0.0), Candidate(2, 1.0, 0.0, 1)], span=(0, 1), share=0)
    assert without == {2: 0.5, 1: 0.0}


def test_a_previous_row_that_is_no_candidate_changes_nothing() -> None:
    assert fuse([Candidate(1, 0.5, 1.0, previous=99)], span=(0, 1)) == fuse([Candidate(1, 0.5, 1.0)], span=(0, 1))


def test_the_span_of_the_near_leg_keeps_poor_neighbours_from_stretching_the_scale() -> None:
    near = [Candidate("a", 0.90), Candidate("b", 0.80)]
    scores = fuse([*near, Candidate("neighbour", 0.1)], span=(0.80, 0.90))
    assert scores["b"] == scores["neighbour"] == 0
    assert fuse(near, span=(0.80, 0.90))["a"] == scores["a"]


def test_equal_scores_keep_the_order_of_their_keys() -> None:
    assert list(fuse([Candidate(key, 0.5, 1.0) for key in ("c", "a", "b")])) == ["a", "b", "c"]
