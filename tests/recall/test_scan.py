from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from candidates import Candidate, lined_up
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.recall.fusion import fuse
from hermes_memory_pgvector.recall.scan import BITS, BM25_B, BM25_K1, Columns, Key, Scan, related, scanned

# More than fit into one column of the statement.
WORDS = [f"word{n}" for n in range(70)]


@dataclass(frozen=True)
class Row:
    key: Key
    session: int
    at: float
    cosine: float | None
    length: int
    held: frozenset[int]
    version: int = 0


def sent(rows: Sequence[Row]) -> list[Columns]:
    """The rows as the database sends them: the numbers of a theme one behind the other."""
    themes: dict[str, list[bytes]] = defaultdict(lambda: [b""] * 8)
    for row in rows:
        low, high = (sum(1 << bit - start for bit in row.held if start <= bit < start + BITS) for start in (0, BITS))
        numbers = (
            row.key[1],
            row.session,
            row.at,
            math.nan if row.cosine is None else row.cosine,
            row.length,
            low,
            high,
            row.version,
        )
        for n, (sign, number) in enumerate(zip("qqddiqqI", numbers, strict=True)):
            themes[row.key[0]][n] += struct.pack(f">{sign}", number)
    return [(theme, *columns) for theme, columns in themes.items()]


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
                length=len(held) + number % 3,
                held=held,
                version=draw(st.integers(0, 2**32 - 1)),
            )
        )
    return found


def scan_of(rows: Sequence[Row]) -> Scan:
    return scanned(sent(rows), WORDS)


def worths_by_hand(rows: Sequence[Row]) -> dict[Key, dict[str, float]]:
    worded = [row for row in rows if row.held]
    found = {}
    for row in worded:
        count = {n: sum(n in other.held for other in rows) for n in row.held}
        mean = sum(other.length for other in worded) / len(worded)
        brevity = (BM25_K1 + 1) / (1 + BM25_K1 * (1 - BM25_B + BM25_B * row.length / mean))
        found[row.key] = {
            WORDS[n]: brevity * math.log(1 + (len(rows) - times + 0.5) / (times + 0.5)) ** 2
            for n, times in count.items()
        }
    return found


@given(rows(), st.integers(1, 40))
def test_the_words_are_scored_by_bm25(rows: list[Row], limit: int) -> None:
    found = scan_of(rows).worded(limit)
    wanted = worths_by_hand(rows)
    scores = {key: math.fsum(worth.values()) for key, worth in wanted.items()}
    assert len(found) == min(limit, len(wanted))
    assert all(found[key] == pytest.approx(wanted[key]) for key in found)
    assert all(scores[first] >= scores[second] - 1e-9 for first, second in pairwise(found))
    least = min((scores[key] for key in found), default=0)
    assert least >= max((scores[key] for key in wanted.keys() - found.keys()), default=0) - 1e-9


@given(rows(), st.integers(1, 40))
def test_the_nearest_come_first_and_rows_without_a_vector_not_at_all(rows: list[Row], limit: int) -> None:
    found = scan_of(rows).near(limit)
    stored = {row.key: row.cosine for row in rows if row.cosine is not None}
    assert list(found.values()) == sorted(stored.values(), reverse=True)[:limit]
    assert all(stored[key] == cosine for key, cosine in found.items())


@given(rows(), st.data())
def test_what_is_found_is_fused_with_its_neighbours_in_the_session(rows: list[Row], data: st.DataObject) -> None:
    picked = data.draw(st.sets(st.sampled_from(rows))) if rows else set()
    near = {row.key: data.draw(st.floats(0, 1)) for row in picked}
    limit = data.draw(st.integers(1, 10))
    words = scan_of(rows).worded(limit)
    found = near.keys() | words.keys()
    family: dict[Key, Candidate[Key]] = {}
    told: dict[str, list[bytes]] = defaultdict(lambda: [b""] * 5)
    line = sorted(rows, key=lambda row: (row.session, row.at, row.key[1]))
    for n, row in enumerate(line):
        beside = [line[m] for m in (n - 1, n + 1) if 0 <= m < len(line) and line[m].session == row.session]
        previous = line[n - 1].key if n and line[n - 1].session == row.session else None
        if found & {row.key, *(other.key for other in beside)}:
            family[row.key] = Candidate(row.key, near.get(row.key, row.cosine), words.get(row.key, {}), previous)
            cosine = math.nan if row.cosine is None else row.cosine
            numbers = (row.key[1], row.session, row.at, cosine, previous[1] if previous else row.key[1])
            for place, (sign, number) in enumerate(zip("qqddq", numbers, strict=True)):
                told[row.key[0]][place] += struct.pack(f">{sign}", number)
    wanted = pytest.approx(fuse(lined_up(family.values()), span=(0, 1)))
    gone = ("a", 99)
    assert fuse(scan_of(rows).line({**near, gone: 1.0}, limit), span=(0, 1)) == wanted
    # Told row by row, each with who stands before it, they are the same.
    themes = [(theme, *columns) for theme, columns in told.items()]
    assert fuse(related(themes, {**near, gone: 1.0}, words), span=(0, 1)) == wanted


@given(rows())
def test_each_row_has_its_own_version(rows: list[Row]) -> None:
    scan = scan_of(rows)
    assert [scan.version(row.key) for row in rows] == [(row.version, row.at) if row.version else None for row in rows]
    assert scan.version(("nowhere", 1)) is None


def test_two_terms_of_one_word_add_up() -> None:
    row = Row(("a", 1), 0, 0.0, None, 2, frozenset({0, 1}))
    one, two = (scanned(sent([row]), words) for words in (["foo.bar", "bar"], ["bar", "bar"]))
    assert sum(one.worded(1)["a", 1].values()) == pytest.approx(sum(two.worded(1)["a", 1].values()))
    assert list(two.worded(1)["a", 1]) == ["bar"]


def test_of_rows_that_are_equally_good_the_first_are_found() -> None:
    held = frozenset(range(40))
    rows = [Row(("a", number), number * 7919 % 50, 0.0, 0.5, 40, held) for number in range(50)]
    # Rows between them, so that equal ones stand at odd places.
    rows += [Row(("b", number), 7, 0.0, 0.1, 3, frozenset({number})) for number in range(40)]
    scan = scan_of(rows)
    first = [("a", number) for number in range(30)]
    assert list(scan.worded(30)) == first
    assert list(scan.near(30)) == first


def test_rows_of_two_themes_with_the_same_ids_are_no_neighbours() -> None:
    def column(*numbers: int) -> bytes:
        return struct.pack(f">{len(numbers)}q", *numbers)

    cosines = struct.pack(">d", 0.5)
    themes = [
        ("a", column(5), column(1), cosines, cosines, column(5)),
        ("b", column(6), column(2), cosines, cosines, column(5)),
    ]
    line = related(themes, {("a", 5): 0.5}, {})
    assert line.positions[1] - line.positions[0] > 1


def test_a_question_without_words_finds_none() -> None:
    row = Row(("a", 1), 0, 0.0, 0.5, 2, frozenset())
    scan = scanned(sent([row]), [])
    assert scan.worded(10) == {}
    assert list(scan.line({("a", 1): 0.5}, 10).keys) == [("a", 1)]
