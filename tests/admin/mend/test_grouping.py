"""Which row of a group stays, and which are merged into it, for any rows and any pairs of similar ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.admin.mend.grouping import Group, Row, of_other_words, of_same_words
from hermes_memory_pgvector.text.wording import wording

START = datetime(2026, 3, 4, tzinfo=UTC)
TEXTS = (
    "staging runs here", "Staging runs here.", "the staging host runs here", "staging runs on port 5432",
    "staging is at port 5432", "staging is at port 5433", "staging does not run here", "",
)  # fmt: skip


def row(number: int, text: str, fixed: bool = False, minutes: int = 0, scope: str = "memory") -> Row:
    return Row(number, scope, wording(text), fixed, START + timedelta(minutes=minutes))


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    made = st.tuples(
        st.sampled_from(TEXTS), st.booleans(), st.integers(0, 3), st.sampled_from(("memory", "user"))
    )  # fmt: skip
    found = draw(st.lists(made, max_size=12))
    return draw(st.permutations([row(number, *each) for number, each in enumerate(found)]))


@st.composite
def compared(draw: st.DrawFn) -> tuple[list[Row], dict[tuple[int, int], float]]:
    found = draw(rows())
    numbers = sorted(each.id for each in found)
    every = [(one, other) for one in numbers for other in numbers if one < other]
    pairs = draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    return found, {pair: draw(st.floats(0.9, 1)) for pair in pairs}


def check(found: list[Group], rows: list[Row]) -> None:
    by_id = {each.id: each for each in rows}
    merged = [number for group in found for number in group.merge]
    assert len(merged) == len(set(merged)), "a row is merged once"
    assert not set(merged) & {number for group in found for number in (group.keep, *group.stay)}
    assert not any(by_id[number].fixed for number in merged)
    for group in found:
        assert group.merge
        assert all(by_id[number].fixed for number in group.stay)
        assert all(by_id[number].scope == by_id[group.keep].scope for number in (*group.merge, *group.stay))


@given(rows())
def test_of_the_same_words_one_stays_and_it_is_a_line_of_a_file_or_the_newest(rows: list[Row]) -> None:
    found = of_same_words(rows)
    check(found, rows)
    merged = {number for group in found for number in group.merge}
    by_id = {each.id: each for each in rows}
    left = [each for each in rows if each.id not in merged and each.wording.length]
    loose = [(each.scope, each.wording.key) for each in left if not each.fixed]
    assert len(loose) == len(set(loose)), "no two are left that could be merged"
    for group in found:
        kept = by_id[group.keep]
        assert all(by_id[number].wording.key == kept.wording.key for number in (*group.merge, *group.stay))
        assert kept.fixed or all(by_id[number].at <= kept.at for number in group.merge)
    assert of_same_words(sorted(rows)) == found


@given(compared())
def test_of_other_words_each_row_is_similar_to_the_one_that_stays(
    given_: tuple[list[Row], dict[tuple[int, int], float]],
) -> None:
    rows, pairs = given_
    found = of_other_words(rows, pairs)
    check(found, rows)
    by_id = {each.id: each for each in rows}
    merged = {number for group in found for number in group.merge}
    for group in found:
        similar = [pairs[min(number, group.keep), max(number, group.keep)] for number in group.merge]
        assert group.similarity == min(similar)
        assert all(by_id[number].wording.length <= by_id[group.keep].wording.length for number in group.merge)
        assert all(by_id[number].wording.marks == by_id[group.keep].wording.marks for number in group.merge)
    for one, other in pairs:
        kept, lost = sorted(
            (by_id[one], by_id[other]), key=lambda row: (row.wording.length, row.fixed, row.at, row.id)
        )[::-1]
        same = kept.scope == lost.scope and kept.wording.marks == lost.wording.marks
        if same and kept.wording.key != lost.wording.key and not lost.fixed:
            assert merged & {one, other}, "no two are left that could be merged"
    assert of_other_words(sorted(rows), pairs) == found


def test_a_chain_of_similar_rows_is_no_group() -> None:
    one, two, three = (
        row(1, "staging runs here again today"),
        row(2, "staging runs again here"),
        row(3, "it runs again"),
    )
    (found,) = of_other_words([one, two, three], {(1, 2): 0.95, (2, 3): 0.95})
    assert (found.keep, found.merge) == (1, (2,))


def test_a_shorter_line_of_a_file_stays_beside_the_longer_entry() -> None:
    assert of_other_words([row(1, "runs here", fixed=True), row(2, "staging runs here")], {(1, 2): 0.95}) == []
    (found,) = of_other_words(
        [row(1, "staging runs here", fixed=True), row(2, "runs here"), row(3, "run here", fixed=True)],
        {(1, 2): 0.95, (1, 3): 0.95},
    )
    assert (found.keep, found.merge, found.stay) == (1, (2,), (3,))
