from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.session.state import PENDING_MAX, SAVES_MAX, Save, Turn, Turns

TURNS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12)


@given(TURNS, st.randoms(use_true_random=False))
def test_a_turn_off_the_record_is_recognized_in_any_order(turns: list[tuple[str, bool]], chance: random.Random) -> None:
    opened, waiting, both = Turns(), list[tuple[str, bool]](), {question for question, off in turns if off}
    for turn in turns:
        opened.open(Turn(turn[0], off_record=turn[1]))
        waiting.append(turn)
        chance.shuffle(waiting)
        while waiting and chance.random() < 0.5:
            question, off = waiting.pop()
            told = opened.hand_over(question)
            assert told is not None
            # A question that was never asked off the record is never in doubt.
            assert off <= told <= (question in both)


def test_turns_that_are_handed_over_in_order_are_never_in_doubt() -> None:
    opened = Turns()
    for off in (True, False, True, False):
        opened.open(Turn("a", off_record=off))
        assert opened.hand_over("a") is off


def test_a_turn_with_pictures_is_known_by_its_words() -> None:
    opened = Turns()
    opened.open(Turn("off the record:\nthis is it", author_id="7", off_record=True))
    assert opened.author("[2 images] off the record: this is it") == "7"
    assert opened.hand_over("[2 images] off the record: this is it") is True
    opened.open(Turn("and this?", off_record=False))
    assert opened.hand_over("[1 image] and this?") is False
    opened.open(Turn("", off_record=True))
    assert opened.hand_over("[1 image]") is True
    assert opened.hand_over("[1 image] of another") is None


def test_a_question_that_was_not_opened_is_off_the_record_only_while_such_a_turn_is_pending() -> None:
    opened = Turns()
    assert opened.hand_over("a picture of it") is None
    opened.open(Turn("on the record", off_record=False))
    assert opened.hand_over("a picture of it") is None
    opened.open(Turn("", off_record=True))
    assert opened.hand_over("a picture of it") is True
    # Hosts hand over turns in their order: after a later one it does not come any more.
    opened.open(Turn("a", off_record=False))
    assert opened.hand_over("a") is False
    assert opened.hand_over("a picture of it") is None


def test_the_oldest_of_too_many_turns_are_forgotten() -> None:
    opened = Turns()
    opened.open(Turn("first", off_record=True))
    opened.open(Turn("second", off_record=True))
    for number in range(PENDING_MAX - 1):
        opened.open(Turn(f"interrupted {number}", off_record=False))
    assert opened.hand_over("second") is True
    assert opened.hand_over("first") is None


def test_the_saves_of_a_turn_are_those_of_it_and_of_interrupted_ones_before_it() -> None:
    turns = Turns()
    for question in "abc":
        turns.open(Turn(question))
        turns.current.note_save("1", f"save of {question}")
    assert turns.saves("b") == [Save("a", "1", "save of a"), Save("b", "1", "save of b")]
    turns.hand_over("b")
    assert turns.saves("c") == turns.saves("rewritten") == turns.saves() == [Save("c", "1", "save of c")]
    for number in range(2 * SAVES_MAX):
        turns.current.note_save(str(number), "later")
    assert len(turns.saves()) == SAVES_MAX
