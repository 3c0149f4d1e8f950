"""Writing: events become rows, each event exactly once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any, TypeVar
from uuid import UUID

from ..background import unhurried
from ..model import Add, Delegated, Event, Remove, Replace, SessionEnded, TurnTaken, Vector, Withdrawn
from ..text import tokenizer
from . import entry_changes, out_of_order
from .connection.database import Connection, half
from .passages import Passage, passages
from .queries import QUERIES

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Planned:
    """An event ready to be written: its passages, and a vector for each, or None for one that is embedded later."""

    event: Event
    passages: tuple[Passage, ...]
    vectors: tuple[Vector | None, ...]


def apply(connection: Connection, batch: Sequence[Planned]) -> int:
    """Write a batch in order, in the caller's transaction. Returns how many events were new; the rest was there.

    Raises what `Database.connection` raises; BadEvent then means that some event of the batch can never be stored.
    """
    fresh = 0
    out_of_order.lock(connection, (planned.event for planned in batch))
    for (is_turn, theme), group in groupby(batch, key=lambda p: (isinstance(p.event, TurnTaken), p.event.theme)):
        if is_turn:
            # A statement sees the ledger as it was before, so an event must not stand in it twice.
            fresh += _add_turns(connection, theme, list({planned.event.id: planned for planned in group}.values()))
        else:
            fresh += sum(_apply_one(connection, planned) for planned in unhurried(group))
    return fresh


def _add_turns(connection: Connection, theme: str, batch: Sequence[Planned]) -> int:
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "row_events",
            "sessions",
            "parents",
            "roles",
            "contents",
            "times",
            "embeddings",
            "words",
            "metadatas",
        )
    }
    turns = [planned.event for planned in batch if isinstance(planned.event, TurnTaken)]
    rows = (
        (turn, index, passage, vector)
        for turn, planned in zip(turns, batch, strict=True)
        for index, (passage, vector) in enumerate(zip(planned.passages, planned.vectors, strict=True))
    )
    for turn, index, passage, vector in unhurried(rows):
        _append_row(columns, turn, index, passage, vector)
    events = [turn.id for turn in turns]
    found = connection.execute(QUERIES["add_turns"], {"theme": theme, "events": events, **columns}).fetchone()
    assert found is not None
    fresh = set(found["fresh"])
    if found["replayed"] or found["withdrawn"]:
        out_of_order.settle(connection, theme, [turn for turn in turns if UUID(turn.id) in fresh])
    return len(fresh)


def _append_row(
    columns: dict[str, list[Any]], turn: TurnTaken, index: int, passage: Passage, vector: Vector | None
) -> None:
    columns["row_events"].append(turn.id)
    columns["sessions"].append(turn.session_id)
    columns["parents"].append(turn.parent_session_id)
    columns["roles"].append(passage.role)
    columns["contents"].append(passage.content)
    # The two sides of a turn share its time; a microsecond keeps them in order.
    columns["times"].append(turn.at + timedelta(microseconds=index))
    columns["embeddings"].append(half(vector))
    columns["words"].append(tokenizer.document(passage.content))
    columns["metadatas"].append(json.dumps(dict(turn.metadata)))


def _apply_one(connection: Connection, planned: Planned) -> int:
    event = planned.event
    if isinstance(event, Add | Replace | Remove):
        connection.execute(QUERIES["lock_home"], {"home": event.home})
    match event:
        case SessionEnded():
            return _add_missing_turns(connection, event)
        case Delegated():
            return _add_delegation(connection, planned, event)
    logged = connection.execute(QUERIES["log_event"], {"theme": event.theme, "event": event.id})
    if logged.rowcount == 0:
        return 0
    match event:
        case Add() | Replace() | Remove():
            entry_changes.apply(connection, event, half(next(iter(planned.vectors), None)))
        case Withdrawn():
            out_of_order.withdraw(connection, event)
    return 1


def _add_missing_turns(connection: Connection, event: SessionEnded) -> int:
    told = {
        "theme": event.theme, "sessions": [event.session_id, *event.ancestors],
        "answers": [answer for _, answer in event.turns],
    }  # fmt: skip
    stored = connection.execute(QUERIES["count_answers"], told).fetchall()
    missing = missing_turns(event.turns, {(row["question"], row["answer"]): row["times"] for row in stored})
    if not missing:
        return connection.execute(QUERIES["log_event"], {"theme": event.theme, "event": event.id}).rowcount
    turns = out_of_order.replayed(event, missing)
    planned = [Planned(turn, found := passages(turn), (None,) * len(found)) for turn in turns]
    return min(1, _add_turns(connection, event.theme, planned))


def missing_turns(replayed: Iterable[tuple[str, str]], stored: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """The replayed turns that are not stored, counted as a multiset.

    What is left when equal turns are settled is compared by its answers alone: hosts rewrite the user's side (injected
    context, skill bodies), never the answer.
    """
    turns, answers = Counter(stored), Counter[str]()
    unsettled = [turn for turn in replayed if not _take(turns, turn)]
    for (_, answer), times in turns.items():
        answers[answer] += times
    return [turn for turn in unsettled if not _take(answers, turn[1])]


def _take(left: Counter[T], wanted: T) -> bool:
    """Whether there was one left of what is wanted, which then is not there any more."""
    if not left[wanted]:
        return False
    left[wanted] -= 1
    return True


def _add_delegation(connection: Connection, planned: Planned, event: Delegated) -> int:
    turn = TurnTaken(
        id=event.id, theme=event.theme, home=event.home, session_id=event.session_id, at=event.at,
        user=event.task, assistant=event.result, metadata={**event.metadata, "delegated_to": event.child_session_id},
    )  # fmt: skip
    fresh = _add_turns(connection, event.theme, [Planned(turn, planned.passages, planned.vectors)])
    if fresh:
        connection.execute(
            QUERIES["add_delegation"],
            {
                "theme": event.theme, "event": event.id, "parent": event.session_id, "child": event.child_session_id,
                "task": event.task, "result": event.result, "at": event.at,
                "metadata": json.dumps(dict(event.metadata)),
            },
        )  # fmt: skip
    return fresh


def forget(connection: Connection, theme: str, events: Sequence[str]) -> None:
    """Take events out of the ledger, as if they had never been; one that comes again is then applied again."""
    connection.execute(QUERIES["forget_events"], {"theme": theme, "events": list(events)})
