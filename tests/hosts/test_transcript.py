"""What the messages of a transcript say, and which turns of it the compressed one after it tells once more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.hosts.transcript import PARTS_MAX, carried, exchanges, is_compressed, since_handoff, text_of
from hermes_memory_pgvector.session.capture import Capture
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.text.keep import Source

RECEIPT = "This receipt is from the hotel in Porto."
FILED = "It is filed under travel."
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "x"]), inner),
    max_leaves=10,
)

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
def test_exchanges_that_are_twice_on_either_side_are_left_out(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    for pair in carried(before, after):
        assert before.count(pair) == after.count(pair) == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (RECEIPT, RECEIPT),
        ([{"type": "text", "text": RECEIPT}], RECEIPT),
        ([{"type": "input_text", "text": "one"}, {"type": " Output_Text", "text": "two"}, "three"], "one\ntwo\nthree"),
        (
            [{"type": "text", "text": " one "}, {"type": "text", "text": ""}, {"type": "text", "text": "two\n"}],
            "one \ntwo",
        ),
        ([{"type": "text", "text": RECEIPT}, IMAGE], f"[1 image] {RECEIPT}"),
        ([IMAGE, {"type": "input_image"}], "[2 images]"),
        ([{"type": "text"}, {"type": "text", "text": 7}, {"type": 7, "text": "x"}, {"text": "x"}, ["x"], None], ""),
        (None, ""),
        (7, ""),
        ({"type": "text", "text": "x"}, ""),
        (["x"] * 3 * PARTS_MAX, "\n".join(["x"] * PARTS_MAX)),
    ],
)
def test_the_parts_of_a_message_are_one_text(content: Any, text: str) -> None:
    assert text_of(content) == text


@given(ODD)
def test_whatever_a_message_holds_it_has_a_text(content: Any) -> None:
    assert isinstance(text_of(content), str)


def test_a_turn_with_parts_is_an_exchange_and_is_kept_as_one_that_was_put_together() -> None:
    answer = [{"type": "text", "text": FILED}]
    told = [
        {"role": "user", "content": [{"type": "text", "text": RECEIPT}, IMAGE]},
        {"role": "assistant", "content": answer},
    ]
    assert exchanges(told) == [(f"[1 image] {RECEIPT}", FILED)]
    assert Capture(Settings()).turn(told[0]["content"], answer, Source()).sides == exchanges(told)[0]


def test_a_summary_is_recognized_beside_an_image() -> None:
    summary = [{"type": "text", "text": "[CONTEXT COMPACTION] There was talk of hotels."}, IMAGE]
    assert exchanges([{"role": "user", "content": summary}, {"role": "assistant", "content": FILED}]) == [("", FILED)]


KEPT = (
    "[PRIOR CONTEXT — for reference only; not a new message]\n{}\n\n[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]"
)


@pytest.mark.parametrize(("role", "told"), [("user", [(RECEIPT, FILED)]), ("assistant", [("", FILED)])])
def test_of_a_message_in_one_with_a_summary_a_question_alone_is_kept(role: str, told: list[tuple[str, str]]) -> None:
    """The question of an answer is in the summary, so the answer is that of no question in the transcript."""
    kept = KEPT.format(RECEIPT) + "\n\n[CONTEXT COMPACTION — REFERENCE ONLY] There was talk of hotels."
    opening = [] if role == "user" else [{"role": "user", "content": ""}]
    assert exchanges([*opening, {"role": role, "content": kept}, {"role": "assistant", "content": FILED}]) == told
    assert is_compressed([{"role": role, "content": kept}])


def test_what_was_said_before_a_terminal_handed_its_session_to_a_chat_is_not_of_the_chat() -> None:
    said = [{"role": role, "content": text} for role, text in (("user", "Which tap?"), ("assistant", "The red one."))]
    note = {"role": "user", "content": '[Session was just handed off from CLI ("taps") to this channel. Go on.]'}
    quoted = {"role": "user", "content": f"What does this mean: {note['content']}"}
    assert since_handoff([*said, note, *said, note, quoted, *said]) == [note, quoted, *said]
    assert since_handoff(said) is said
