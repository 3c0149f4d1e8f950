from __future__ import annotations

import itertools
import logging
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes_memory_pgvector.session import off_record as module
from hermes_memory_pgvector.session.off_record import OffRecordSessions, on_record, switch

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
def test_a_transcript_without_its_middle_contains_no_turn_off_the_record(
    shape: list[tuple[str, str]], kept: int, lost: int
) -> None:
    switches = [turn for turn in shape if turn[0]]
    # Who says it twice, and loses the first one, is taken at the second.
    assume(all(before != after for before, after in itertools.pairwise(switches)))
    turns = [turn if turn[0] else (f"question {number}", "a") for number, turn in enumerate(shape)]
    left = [*turns[: min(kept, lost)], ("", ""), *turns[lost:], ON]
    assert set(on_record(left)) - {("", "")} <= set(on_record([*turns, ON]))


def test_sessions_are_kept_for_other_processes_and_bounded(tmp_path: Path) -> None:
    one, other = OffRecordSessions(tmp_path), OffRecordSessions(tmp_path)
    one.set("a session by its id", off=True)
    assert other.is_off("a session by its id")
    assert not other.is_off("another")
    assert not any("by its id" in path.name for path in tmp_path.rglob("*"))
    other.set("a session by its id", off=False)
    assert not one.is_off("a session by its id")


_SPEAKER = """
    import sys, time
    from pathlib import Path
    from hermes_memory_pgvector.session.off_record import OffRecordSessions
    sessions = OffRecordSessions(Path(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(100):
        sessions.set(sys.argv[2] + str(number), off=True)
        time.sleep(0.001)
"""


def test_two_processes_that_switch_at_the_same_time_lose_no_session(tmp_path: Path) -> None:
    speakers = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(_SPEAKER), str(tmp_path), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        ) for name in "ab"
    ]  # fmt: skip
    for speaker in speakers:
        assert speaker.stdout is not None
        assert speaker.stdout.readline() == "ready\n"
    for speaker in speakers:
        assert speaker.stdin is not None
        speaker.stdin.write("go\n")
        speaker.stdin.flush()
    for speaker in speakers:
        speaker.communicate(timeout=60)
        assert speaker.returncode == 0
    sessions = OffRecordSessions(tmp_path)
    assert [f"{name}{number}" for name in "ab" for number in range(100) if not sessions.is_off(f"{name}{number}")] == []


def test_the_oldest_of_too_many_sessions_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSIONS_MAX", 3)
    sessions = OffRecordSessions(tmp_path)
    for name in "abcd":
        sessions.set(name, off=True)
    assert [OffRecordSessions(tmp_path).is_off(name) for name in "abcd"] == [False, True, True, True]
    assert sum(path.is_file() for path in tmp_path.rglob("*")) <= 3


def test_a_home_that_cannot_be_written_is_off_the_record_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sessions = OffRecordSessions(tmp_path / "file" / "pgvector")
    sessions.set("s", off=True)
    assert sessions.is_off("s")


def test_a_mark_that_could_not_be_written_is_written_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = tmp_path / "pgvector"
    state.write_text("")
    sessions, other = OffRecordSessions(state), OffRecordSessions(state)
    with caplog.at_level(logging.WARNING):
        sessions.set("s", off=True)
    assert str(state) in caplog.text
    state.unlink()
    assert sessions.is_off("s")
    assert other.is_off("s")


def test_a_process_whose_home_loses_the_folder_still_knows_what_is_off_the_record(tmp_path: Path) -> None:
    state = tmp_path / "pgvector"
    sessions = OffRecordSessions(state)
    sessions.set("s", off=True)
    shutil.rmtree(state)
    assert sessions.is_off("s")
    assert not sessions.is_off("t")
