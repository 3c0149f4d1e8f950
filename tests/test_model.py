from __future__ import annotations

from dataclasses import FrozenInstanceError, astuple, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from hermes_memory_pgvector.model import Add, Recall, Remove, Scope, TurnTaken, now


def test_every_event_gets_an_id_of_its_own_that_postgres_takes() -> None:
    events = [TurnTaken(theme="t", user="u", assistant="a") for _ in range(100)]
    assert len({UUID(event.id) for event in events}) == 100


def test_an_event_has_the_time_of_its_hook_with_a_zone() -> None:
    event = Add(theme="t", target="memory", content="c")
    assert event.at.utcoffset() == timedelta(0)
    assert datetime.now(UTC) - event.at < timedelta(minutes=1)
    assert now().tzinfo is UTC


def test_values_do_not_change_and_share_nothing() -> None:
    event = Remove(theme="t", target="user")
    with pytest.raises(FrozenInstanceError):
        event.theme = "other"  # type: ignore[misc]
    assert event.metadata is not Remove(theme="t", target="user").metadata
    assert replace(event, theme="other").id == event.id


def test_scopes_are_keys() -> None:
    assert {Scope("a", ("a",)): 1}[Scope("a", ("a",))] == 1
    assert Scope("a", ("a",)) != Scope("a", None)


def test_nothing_found_is_not_degraded() -> None:
    assert Recall() == Recall((), ())
    assert set(astuple(Recall().explanation)) == {0, "none"}
