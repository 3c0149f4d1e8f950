"""Which turns of a transcript the compressed one after it tells once more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.transcript import carried

SUMMARY = ("", "")
COUNTS = st.integers(0, 4)


def said(first: int, count: int) -> list[tuple[str, str]]:
    return [(f"question {number}", f"answer {number}") for number in range(first, first + count)]


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.booleans(), st.booleans())
def test_the_first_and_the_last_turns_are_found_around_a_summary_wherever_it_stands(
    first: int, summarized: int, last: int, new: int, apart: bool, running: bool
) -> None:
    before = said(0, first + summarized + last)
    head, tail = before[:first], before[len(before) - last :]
    after = [*head, *([SUMMARY] if apart else []), *tail]
    if running:
        after, before = [*after, ("now", "done")], [*before, ("now", "")]
    assert carried(before, [*after, *said(50, new)]) == [*head, *tail]


@given(st.lists(st.sampled_from(said(0, 3)), max_size=6), st.lists(st.sampled_from(said(0, 3)), max_size=6))
def test_what_is_told_twice_on_either_side_is_none_of_them(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    for pair in carried(before, after):
        assert before.count(pair) == after.count(pair) == 1
