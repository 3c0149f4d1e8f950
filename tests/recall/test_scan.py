from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from candidates import Candidate, as_arrays
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.recall.fusion import Span, candidates_of, fuse
from hermes_memory_pgvector.recall.vector_search import nearest_of
from hermes_memory_pgvector.recall.word_search import (
    BM25_K1,
    FUNCTION_SHARE,
    IDF_POWER,
    LENGTH,
    LENGTHS_MAX,
    QUESTION_SHARE,
    WordMatches,
    bm25,
)
from hermes_memory_pgvector.store.retrieval import Key, RelatedRows, ScannedRows

WORDS = [f"word{n}" for n in range(70)]


@dataclass(frozen=True)
class Row:
    key: Key
    session: int
    at: float
    cosine: float | None
    length: int
    held: frozenset[int]


def scan_of(rows: Sequence[Row], words: Sequence[str] = WORDS) -> ScannedRows:
    """These rows as read for a question with a term for each of the words."""
    held = np.array([[n in row.held for n in range(len(words))] for row in rows], dtype=bool)
    return ScannedRows(
        [row.key for row in rows],
        np.array([row.key[1] for row in rows], dtype=np.int64),
        np.array([row.session for row in rows], dtype=np.int64),
        np.array([row.at for row in rows], dtype=float),
        np.array([row.cosine for row in rows], dtype=float),
        np.array([row.length for row in rows], dtype=np.int32),
        held.reshape(len(rows), len(words)),
        list(words),
    )


def related(rows: Sequence[tuple[Row, Key | None]]) -> RelatedRows:
    """These rows, each with the row before it in its session."""
    return RelatedRows(
        [row.key for row, _ in rows],
        np.array([row.key[1] for row, _ in rows], dtype=np.int64),
        np.array([row.session for row, _ in rows], dtype=np.int64),
        np.array([row.at for row, _ in rows], dtype=float),
        np.array([row.cosine for row, _ in rows], dtype=float),
        np.array([row.length for row, _ in rows], dtype=np.int32),
        np.array([previous[1] if previous else row.key[1] for row, previous in rows], dtype=np.int64),
    )


def word_matches(rows: Sequence[Row], limit: int) -> WordMatches:
    return bm25(scan_of(rows), limit, total=len(rows))


def by_key(matches: WordMatches) -> dict[Key, dict[str, float]]:
    """The words of each row with their scores."""
    return {
        key: {word: score for word, score in zip(matches.words, scores, strict=True) if score}
        for key, scores in zip(matches.keys, matches.scores.tolist(), strict=True)
    }


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Up to 30 rows of some sessions, as they come."""
    found = []
    for number in draw(st.permutations(range(draw(st.integers(0, 30))))):
        theme = draw(st.sampled_from("ab"))
        held = draw(st.frozensets(st.integers(0, 69), max_size=4))
        found.append(
            Row(
                key=(theme, number),
                # A session is one theme's alone.
                session=draw(st.sampled_from([-(2**63), 2**62])) + (theme == "b"),
                at=draw(st.sampled_from([0.5, 1.5])),
                cosine=draw(st.none() | st.floats(-1, 1)),
                length=len(held) + 25 * (number % 9),
                held=held,
            )
        )
    return found


def worths_by_hand(rows: Sequence[Row]) -> dict[Key, dict[str, float]]:
    worded = [row for row in rows if row.held]
    found = {}
    for row in worded:
        count = {n: sum(n in other.held for other in rows) for n in row.held}
        brevity = (BM25_K1 + 1) / (1 + BM25_K1 * min(max(1, row.length / LENGTH), LENGTHS_MAX))
        found[row.key] = {
            WORDS[n]: brevity * math.log(1 + (len(rows) - times + 0.5) / (times + 0.5)) ** IDF_POWER
            for n, times in count.items()
        }
    return found


@given(rows(), st.integers(1, 40))
def test_the_words_are_scored_by_bm25(rows: list[Row], limit: int) -> None:
    found = by_key(word_matches(rows, limit))
    wanted = worths_by_hand(rows)
    scores = {key: math.fsum(worth.values()) for key, worth in wanted.items()}
    assert len(found) == min(limit, len(wanted))
    assert all(found[key] == pytest.approx(wanted[key]) for key in found)
    assert all(scores[first] >= scores[second] - 1e-9 for first, second in pairwise(found))
    least = min((scores[key] for key in found), default=0)
    assert least >= max((scores[key] for key in wanted.keys() - found.keys()), default=0) - 1e-9


@given(rows(), st.integers(1, 40))
def test_the_nearest_come_first_and_rows_without_a_vector_not_at_all(rows: list[Row], limit: int) -> None:
    found = nearest_of(scan_of(rows), limit)
    stored = {row.key: row.cosine for row in rows if row.cosine is not None}
    assert list(found.values()) == sorted(stored.values(), reverse=True)[:limit]
    assert all(stored[key] == cosine for key, cosine in found.items())


@given(rows(), st.data())
def test_what_is_found_is_fused_with_its_neighbours_in_the_session(rows: list[Row], data: st.DataObject) -> None:
    picked = data.draw(st.sets(st.sampled_from(rows))) if rows else set()
    near = {row.key: data.draw(st.floats(0, 1)) for row in picked}
    limit = data.draw(st.integers(1, 10))
    matches = word_matches(rows, limit)
    words = by_key(matches)
    found = near.keys() | words.keys()
    family: dict[Key, Candidate] = {}
    beside_found: list[tuple[Row, Key | None]] = []
    line = sorted(rows, key=lambda row: (row.session, row.at, row.key[1]))
    for n, row in enumerate(line):
        beside = [line[m] for m in (n - 1, n + 1) if 0 <= m < len(line) and line[m].session == row.session]
        previous = line[n - 1].key if n and line[n - 1].session == row.session else None
        if found & {row.key, *(other.key for other in beside)}:
            family[row.key] = Candidate(
                row.key, near.get(row.key, row.cosine), words.get(row.key, {}), previous, row.length
            )
            beside_found.append((row, previous))
    wanted = pytest.approx(fuse(as_arrays(family.values(), matches.reachable), span=Span(0, 1)))
    near[("a", 99)] = 1.0  # a row that is gone
    assert fuse(candidates_of(scan_of(rows), near, matches), span=Span(0, 1)) == wanted
    # Found by two searches and then read with their neighbours, they are the same.
    assert fuse(candidates_of(related(beside_found), near, matches), span=Span(0, 1)) == wanted


def test_function_words_of_the_questions_language_count_little_and_limit_what_it_can_reach() -> None:
    rows = [Row(("a", number), 0, 0.0, None, 3, frozenset({number % 3})) for number in range(60)]
    scan = scan_of(rows)
    found = bm25(scan._replace(words=["wann", "ist", "umzug", *scan.words[3:]]), 60, total=60)
    content, function = found.scores[:, 2].max(), found.scores[:, :2].max(axis=0)
    assert function == pytest.approx(FUNCTION_SHARE * content)
    plain = bm25(scan, 60, total=60)
    assert found.reachable == pytest.approx(plain.reachable - (1 - FUNCTION_SHARE) * 2 * content)


def test_words_that_ask_count_little() -> None:
    rows = [Row(("a", number), 0, 0.0, None, 3, frozenset({number % 3})) for number in range(60)]
    scan = scan_of(rows)
    found = bm25(scan._replace(words=["many", "deploys", "zeppelins", *scan.words[3:]]), 60, total=60)
    assert found.scores[:, 0].max() == pytest.approx(QUESTION_SHARE * found.scores[:, 1].max())


def test_of_rows_that_are_equally_good_the_first_are_found() -> None:
    held = frozenset(range(40))
    rows = [Row(("a", number), number * 7919 % 50, 0.0, 0.5, 40, held) for number in range(50)]
    # Rows between them, so that equal ones stand at odd places.
    rows += [Row(("b", number), 7, 0.0, 0.1, 3, frozenset({number})) for number in range(40)]
    first = [("a", number) for number in range(30)]
    assert word_matches(rows, 30).keys == first
    assert list(nearest_of(scan_of(rows), 30)) == first


def test_rows_of_two_themes_with_the_same_ids_are_no_neighbours() -> None:
    rows = [Row(("a", 5), 1, 0.5, 0.5, 1, frozenset()), Row(("b", 6), 2, 0.5, 0.5, 1, frozenset())]
    near = {("a", 5): 0.5, ("b", 6): 0.5}
    found = candidates_of(related([(rows[0], None), (rows[1], ("a", 5))]), near, word_matches(rows, 10))
    assert found.positions[1] - found.positions[0] > 1


def test_a_question_without_words_finds_none() -> None:
    row = Row(("a", 1), 0, 0.0, 0.5, 2, frozenset())
    scan = scan_of([row], [])
    matches = bm25(scan, 10, total=1)
    assert matches.keys == []
    assert candidates_of(scan, {row.key: 0.5}, matches).keys == [row.key]
