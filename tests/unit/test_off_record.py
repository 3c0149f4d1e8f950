from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes_memory_pgvector import off_record as module
from hermes_memory_pgvector.off_record import OffRecord, on_record, switch

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


@given(st.lists(st.sampled_from([OFF, ON, ("", "")]), max_size=10), st.integers(0, 9))
def test_a_transcript_that_lost_its_beginning_and_ends_on_the_record_uncovers_nothing(
    shape: list[tuple[str, str]], lost: int
) -> None:
    switches = [turn for turn in shape if turn[0]]
    # Who says it twice, and loses the first one, is taken at the second.
    assume(all(before != after for before, after in itertools.pairwise(switches)))
    turns = [turn if turn[0] else (f"question {number}", "a") for number, turn in enumerate(shape)]
    left = [*turns[lost:], ON]
    assert set(on_record(left)) <= set(on_record([*turns, ON]))


def test_sessions_are_kept_for_other_processes_and_bounded(tmp_path: Path) -> None:
    one, other = OffRecord(tmp_path), OffRecord(tmp_path)
    one.turn("a session by its id", off=True)
    assert other.holds("a session by its id")
    assert not other.holds("another")
    assert "by its id" not in (tmp_path / "off_record.json").read_text()
    other.turn("a session by its id", off=False)
    assert not one.holds("a session by its id")


def test_the_oldest_of_too_many_sessions_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSIONS_MAX", 3)
    sessions = OffRecord(tmp_path)
    for name in "abcd":
        sessions.turn(name, off=True)
    assert [OffRecord(tmp_path).holds(name) for name in "abcd"] == [False, True, True, True]


def test_a_home_that_cannot_be_written_is_off_the_record_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sessions = OffRecord(tmp_path / "file" / "pgvector")
    sessions.turn("s", off=True)
    assert sessions.holds("s")
