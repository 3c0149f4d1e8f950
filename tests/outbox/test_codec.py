from __future__ import annotations

import contextlib
import json
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from event_strategies import events, json_values
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.errors import BadEvent
from hermes_memory_pgvector.model import (
    Add,
    Attributed,
    Delegated,
    Event,
    FactsPurged,
    FactsTicked,
    FactWritten,
    Remove,
    Replace,
    SessionEnded,
    TurnTaken,
    Update,
    Withdrawn,
)
from hermes_memory_pgvector.outbox.codec import MAGIC, decode, encode


@given(events)
def test_every_event_comes_back_as_it_was(event: Event) -> None:
    assert decode(encode(event)) == event


def test_every_kind_of_event_is_covered_by_the_round_trip() -> None:
    examples: list[Event] = [
        Add(theme="t", target="memory", content="a", from_file=True),
        Add(theme="t", target="memory", content="a", supersedes=7, expires="never", tags=("x", "y")),
        Update(theme="t", entry_id=7, content="b", expires="2026-12-01T00:00:00+00:00", tags=()),
        Replace(theme="t", target="user", content="b", previous="a", old_text="x", surviving=("c",)),
        Remove(theme="t", target="user", previous="a", old_text="x", surviving=("c", "d")),
        Attributed(theme="t", saves=("ab12", "cd34")),
        TurnTaken(theme="t", user="u", assistant="a", parent_session_id="p"),
        SessionEnded(theme="t", turns=(("u", "a"), ("v", "b")), parent_session_id="p"),
        Withdrawn(theme="t", turns=(("u", "a"),), standing=(1,), continued=("s",)),
        Delegated(theme="t", task="do", result="done", child_session_id="c"),
        FactWritten(theme="t", kind="?", target="pump", content="which valve", scope="roof"),
        FactsTicked(theme="t", turn=7, closing=True),
        FactsPurged(theme="t", scope="roof", older_than_days=7),
    ]
    assert {type(event) for event in examples} == set(Event.__args__)  # type: ignore[attr-defined]
    for event in examples:
        again = decode(encode(event))
        assert [getattr(again, field.name) for field in fields(again)] == [
            getattr(event, field.name) for field in fields(event)
        ]


@given(events)
def test_no_payload_contains_the_magic(event: Event) -> None:
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
def test_a_payload_of_another_format_is_a_bad_event(payload: bytes) -> None:
    with pytest.raises(BadEvent):
        decode(payload)


@given(
    st.dictionaries(st.sampled_from(["kind", "at", "theme", "target", "content", "turns", "surviving"]), json_values)
)
def test_any_json_object_is_an_event_or_a_bad_event(values: dict[str, Any]) -> None:
    payload = json.dumps({**values, "kind": values.get("kind", "Add")}).encode()
    with contextlib.suppress(BadEvent):
        assert type(decode(payload)).__name__ == values.get("kind", "Add")
