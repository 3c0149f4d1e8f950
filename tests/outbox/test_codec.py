from __future__ import annotations

import contextlib
import json
import zlib
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.errors import BadEvent
from hermes_memory_pgvector.model import Add, Delegated, Event, Remove, Replace, SessionEnded, TurnTaken, Withdrawn
from hermes_memory_pgvector.outbox.codec import HEADER, MAGIC, decode, encode, frame
from hermes_memory_pgvector.outbox.segments import Position, Record, read_records, segment_path


def paired(text: str) -> str:
    """The text with the two halves of a character put together; that is all JSON changes, and what `clean` does."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


# Anything that Python calls a text: NUL, lone surrogates and the bytes of our own magic, too.
awkward = st.text(st.sampled_from("a\n\0\ud800\udfff\xf5hm1\U0001f600"), max_size=8)
any_text = awkward | st.text(st.characters(exclude_categories=()))
texts = any_text.map(paired)
texts_also_huge = texts | st.builds(
    lambda text, times: paired(text * times), any_text, st.sampled_from([1_000, 20_000])
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(texts, values, max_size=3),
    max_leaves=8,
)
times = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))]))
accepted: dict[str, Any] = {
    "theme": texts, "home": texts, "session_id": texts, "at": times, "id": texts,
    "metadata": st.dictionaries(texts, json_values, max_size=3),
}  # fmt: skip
targets = st.sampled_from(["memory", "user"])
old: dict[str, Any] = {"previous": texts, "old_text": texts, "surviving": st.lists(texts, max_size=3).map(tuple)}
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
events = st.one_of(
    st.builds(Add, target=targets, content=texts_also_huge, from_file=st.booleans(), **accepted),
    st.builds(Replace, target=targets, content=texts, **old, **accepted),
    st.builds(Remove, target=targets, **old, **accepted),
    st.builds(TurnTaken, user=texts_also_huge, assistant=texts, parent_session_id=texts, **accepted),
    st.builds(SessionEnded, turns=pairs, parent_session_id=texts, **accepted),
    st.builds(
        Withdrawn, turns=pairs, standing=st.lists(st.integers(0, 9)).map(tuple), continued=st.tuples(texts), **accepted
    ),
    st.builds(Delegated, task=texts, result=texts_also_huge, child_session_id=texts, **accepted),
)


def turn(number: int = 1) -> TurnTaken:
    return TurnTaken(theme="ops", user=f"question {number}", assistant=f"answer {number}")


def written(folder: Path, *stretches: bytes, number: int = 1) -> Position:
    content = b"".join(stretches)
    segment_path(folder, number).write_bytes(content)
    return Position(number, len(content))


START = Position(1, 0)


def read(folder: Path, end: Position, start: Position = START, limit: int = 1000) -> list[Record]:
    return read_records(folder, start, end, limit)


@given(events)
def test_every_event_comes_back_as_it_was(event: Event) -> None:
    assert decode(encode(event)) == event


def test_every_kind_of_event_is_covered_by_the_round_trip() -> None:
    examples: list[Event] = [
        Add(theme="t", target="memory", content="a", from_file=True),
        Replace(theme="t", target="user", content="b", previous="a", old_text="x", surviving=("c",)),
        Remove(theme="t", target="user", previous="a", old_text="x", surviving=("c", "d")),
        TurnTaken(theme="t", user="u", assistant="a", parent_session_id="p"),
        SessionEnded(theme="t", turns=(("u", "a"), ("v", "b")), parent_session_id="p"),
        Withdrawn(theme="t", turns=(("u", "a"),), standing=(1,), continued=("s",)),
        Delegated(theme="t", task="do", result="done", child_session_id="c"),
    ]
    assert {type(event) for event in examples} == set(Event.__args__)  # type: ignore[attr-defined]
    for event in examples:
        again = decode(encode(event))
        assert [getattr(again, field.name) for field in fields(again)] == [
            getattr(event, field.name) for field in fields(event)
        ]


@given(events)
def test_the_magic_never_stands_in_a_payload(event: Event) -> None:
    assert MAGIC not in encode(event)


def test_metadata_that_is_not_json_becomes_its_text() -> None:
    event = TurnTaken(theme="t", user="u", assistant="a", metadata={"when": datetime(2026, 1, 2, tzinfo=UTC)})
    assert decode(encode(event)).metadata == {"when": "2026-01-02 00:00:00+00:00"}


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def deep() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"deeper": value}
    return value


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("metadata", [circular(), deep(), {(1, 2): "key"}, {"value": Unprintable()}])
def test_metadata_that_json_cannot_hold_does_not_cost_the_event(metadata: Any) -> None:
    again = decode(encode(TurnTaken(theme="t", user="u", assistant="a", metadata=metadata)))
    assert isinstance(again, TurnTaken)
    assert (again.user, again.assistant) == ("u", "a")
    assert "dropped" in again.metadata


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xff\xfe", b"[]", b"1", b"{}", b'{"kind": "Unknown"}', b'{"kind": []}', b'{"kind": "Add", "at": 5}',
     b'{"kind": "Add", "at": "2026-01-01"}', b"[" * 100_000],
)  # fmt: skip
def test_a_payload_that_is_not_ours_is_a_bad_event(payload: bytes) -> None:
    with pytest.raises(BadEvent):
        decode(payload)


@given(
    st.dictionaries(st.sampled_from(["kind", "at", "theme", "target", "content", "turns", "surviving"]), json_values)
)
def test_any_json_object_is_an_event_or_a_bad_event(values: dict[str, Any]) -> None:
    payload = json.dumps({**values, "kind": values.get("kind", "Add")}).encode()
    with contextlib.suppress(BadEvent):
        assert type(decode(payload)).__name__ == values.get("kind", "Add")


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
    assert b"".join(taken.raw for taken in found[1:-1]) == garbage


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


def test_nothing_behind_the_end_is_read(tmp_path: Path) -> None:
    end = written(tmp_path, frame(turn(1)), number=1)
    written(tmp_path, frame(turn(2))[:20], number=2)
    assert [taken.event is not None for taken in read(tmp_path, end)] == [True]
