from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hermes_memory_pgvector.session.off_record import on_record, switch

OFF, ON = ("off the record", "I forget all that."), ("on the record", "I listen.")


@pytest.mark.parametrize(
    "message", ["off the record", "Off the record.", " OFF-RECORD! ", "go off the record", "off record"]
)
def test_a_message_that_says_nothing_else_takes_a_session_off_the_record(message: str) -> None:
    assert switch(message) is True


@pytest.mark.parametrize("message", ["on the record", "Back on the record!", "we are on the record"])
def test_a_message_that_says_nothing_else_puts_it_on_again(message: str) -> None:
    assert switch(message) is False


@pytest.mark.parametrize(
    "message", ["", None, [], "what does off the record mean?", "off the records", "off the record, my name is Ann"]
)
def test_other_messages_switch_nothing(message: object) -> None:
    assert switch(message) is None


def test_what_was_said_off_the_record_is_not_in_a_transcript() -> None:
    one, two, three = (("q1", "a1"), ("q2", "a2"), ("q3", "a3"))
    assert on_record([one, OFF, two, ON, three]) == [one, three]
    assert on_record([one, OFF, two]) == [one]
    # The beginning is lost: what stands before "on the record" was said off it, as far as anybody can tell.
    assert on_record([one, two, ON, three]) == [three]
    # So is a middle that was compressed, with the message that took the session off the record once more.
    assert on_record([one, OFF, ON, two, ("", ""), three, ON]) == [one, two]
    assert on_record([one, ON, two, ON, three]) == [two, three]


@given(st.lists(st.sampled_from([OFF, ON, ("", "")]), max_size=10), st.integers(0, 9), st.integers(0, 9))
@example([("", ""), ON, OFF], 1, 2)
def test_a_transcript_without_its_middle_contains_no_turn_off_the_record(
    shape: list[tuple[str, str]], kept: int, lost: int
) -> None:
    switches = [turn for turn in shape if turn[0]]
    # Who says it twice, and loses the first one, is taken at the second.
    assume(all(before != after for before, after in itertools.pairwise(switches)))
    turns = [turn if turn[0] else (f"question {number}", "a") for number, turn in enumerate(shape)]
    left = [*turns[: min(kept, lost)], ("", ""), *turns[lost:], ON]
    assert set(on_record(left)) - {("", "")} <= set(on_record([*turns, ON]))


def test_where_a_switch_may_be_missing_a_turn_before_another_switch_on_is_not_taken_for_recorded() -> None:
    turns = [("on the record", "Fine."), ("a", "1"), ("on the record", "Fine."), ("b", "2")]
    assert on_record(turns) == [("a", "1"), ("b", "2")]
    assert on_record(turns, gaps=True) == [("b", "2")]
