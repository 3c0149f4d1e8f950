from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.session.state import PENDING_MAX, PendingTurns

TURNS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12)


@given(TURNS, st.randoms(use_true_random=False))
def test_a_turn_off_the_record_is_recognized_in_any_order(turns: list[tuple[str, bool]], chance: random.Random) -> None:
    opened, waiting, both = PendingTurns(), list[tuple[str, bool]](), {question for question, off in turns if off}
    for turn in turns:
        opened.begin(turn[0], off=turn[1])
        waiting.append(turn)
        chance.shuffle(waiting)
        while waiting and chance.random() < 0.5:
            question, off = waiting.pop()
            told = opened.hand_over(question)
            assert told is not None
            # A question that was never asked off the record is never in doubt.
            assert off <= told <= (question in both)


def test_turns_that_are_handed_over_in_order_are_never_in_doubt() -> None:
    opened = PendingTurns()
    for off in (True, False, True, False):
        opened.begin("a", off=off)
        assert opened.hand_over("a") is off


def test_a_question_that_was_not_opened_is_off_the_record_only_while_such_a_turn_is_pending() -> None:
    opened = PendingTurns()
    assert opened.hand_over("a picture of it") is None
    opened.begin("on the record", off=False)
    assert opened.hand_over("a picture of it") is None
    opened.begin("", off=True)
    assert opened.hand_over("a picture of it") is True
    # Hosts hand over turns in their order: after a later one it does not come any more.
    opened.begin("a", off=False)
    assert opened.hand_over("a") is False
    assert opened.hand_over("a picture of it") is None


def test_the_oldest_of_too_many_turns_are_forgotten() -> None:
    opened = PendingTurns()
    opened.begin("first", off=True)
    opened.begin("second", off=True)
    for number in range(PENDING_MAX - 1):
        opened.begin(f"interrupted {number}", off=False)
    assert opened.hand_over("second") is True
    assert opened.hand_over("first") is None
