"""Records in segments: read in order, and damage costs no other record."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from event_strategies import events
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.model import Event, TurnTaken
from hermes_memory_pgvector.outbox.codec import HEADER, MAGIC, frame
from hermes_memory_pgvector.outbox.segments import Position, Record, read_records, segment_path


def turn(number: int = 1) -> TurnTaken:
    return TurnTaken(theme="ops", user=f"question {number}", assistant=f"answer {number}")


def written(folder: Path, *stretches: bytes, number: int = 1) -> Position:
    content = b"".join(stretches)
    segment_path(folder, number).write_bytes(content)
    return Position(number, len(content))


START = Position(1, 0)


def read(folder: Path, end: Position, start: Position = START, limit: int = 1000) -> list[Record]:
    return read_records(folder, start, end, limit)


@given(st.lists(events, max_size=5))
def test_records_are_read_in_order_up_to_the_end_and_the_limit(tmp_path_factory: Any, batch: list[Event]) -> None:
    folder = tmp_path_factory.mktemp("records")
    end = written(folder, *map(frame, batch))
    assert [taken.event for taken in read(folder, end)] == batch
    first = read(folder, end, limit=2)
    assert [taken.event for taken in first] == batch[:2]
    if first:
        assert [taken.event for taken in read(folder, end, start=first[-1].position)] == batch[2:]


def test_a_torn_tail_is_one_record_without_an_event(tmp_path: Path) -> None:
    whole, torn = turn(1), frame(turn(2))
    for kept in range(1, len(torn)):
        end = written(tmp_path, frame(whole), torn[:kept])
        first, second = read(tmp_path, end)
        assert first.event == whole
        assert (second.event, second.raw, second.position) == (None, torn[:kept], end)


def test_a_flipped_byte_costs_its_own_record_only(tmp_path: Path) -> None:
    neighbours = turn(1), turn(3)
    middle = frame(turn(2))
    for place in range(len(middle)):
        damaged = bytes([*middle[:place], middle[place] ^ 0x41, *middle[place + 1 :]])
        end = written(tmp_path, frame(neighbours[0]), damaged, frame(neighbours[1]))
        found = read(tmp_path, end)
        assert [taken.event for taken in found] == [neighbours[0], None, neighbours[1]], f"byte {place}"
        assert found[-1].position == end


@given(st.binary(max_size=200))
def test_garbage_between_records_hides_neither(tmp_path_factory: Any, garbage: bytes) -> None:
    folder = tmp_path_factory.mktemp("records")
    end = written(folder, frame(turn(1)), garbage, frame(turn(2)))
    found = read(folder, end)
    assert found[0].event is not None
    assert found[-1].event is not None
    assert found[-1].position == end
    # Zeros are in the place of what was erased.
    assert b"".join(taken.raw for taken in found[1:-1]) == (garbage if garbage.strip(b"\0") else b"")


def test_a_whole_record_of_another_version_is_handed_out_raw(tmp_path: Path) -> None:
    payload = b'{"kind": "Dreamt", "at": "2026-01-01"}'
    end = written(tmp_path, HEADER.pack(MAGIC, len(payload), zlib.crc32(payload)) + payload, frame(turn(1)))
    unknown, known = read(tmp_path, end)
    assert (unknown.event, unknown.raw) == (None, payload)
    assert known.event is not None


def test_reading_goes_on_across_segments_and_gaps(tmp_path: Path) -> None:
    batch = [turn(number) for number in range(6)]
    written(tmp_path, frame(batch[0]), frame(batch[1]), number=2)
    written(tmp_path, number=3)
    written(tmp_path, frame(batch[2]), frame(batch[3]), number=5)
    end = written(tmp_path, frame(batch[4]), frame(batch[5]), number=6)
    assert [taken.event for taken in read(tmp_path, end)] == batch
    assert [taken.event for taken in read(tmp_path, end, limit=3)] == batch[:3]
    assert [taken.event for taken in read(tmp_path, Position(6, len(frame(batch[4]))))] == batch[:5]


def test_nothing_after_the_end_is_read(tmp_path: Path) -> None:
    end = written(tmp_path, frame(turn(1)), number=1)
    written(tmp_path, frame(turn(2))[:20], number=2)
    assert [taken.event is not None for taken in read(tmp_path, end)] == [True]
