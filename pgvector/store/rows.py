"""Stores events as rows, each event exactly once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import groupby
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from ..model import (
    Add,
    Attributed,
    Delegated,
    Event,
    FactEvent,
    FactsPurged,
    FactsTicked,
    FactWritten,
    Remove,
    Replace,
    SessionEnded,
    TurnTaken,
    Update,
    Vector,
    Withdrawn,
)
from ..text import tokenizer
from . import entries, facts, out_of_order, person_links, pieces
from .connection.database import Connection, half
from .connection.distributed import form_of, is_distributed
from .connection.messages import Statement, together
from .erasure import marks
from .facts import PRESSURE, Pressure
from .passages import Passage, PreparedEvent, prepare
from .person_links import Names, Place
from .queries import QUERIES

T = TypeVar("T")
Turn: TypeAlias = tuple[TurnTaken, tuple[Passage, ...]]


def apply(
    connection: Connection,
    batch: Sequence[PreparedEvent],
    pressure: Pressure = PRESSURE,
    erased: set[str] | None = None,
) -> int:
    """Write a batch in order, in the caller's transaction. Returns how many events were new to the ledger.

    Adds to `erased` the ids of the events that hold something that was erased, which is not stored.

    Events of an account are stored under the person that it is linked to, those of an old name under the new one.
    Facts make room by `pressure` at the end. Raises what `Database.connection` raises; BadEvent means that Postgres
    refuses some event of the batch for good.
    """
    fresh, homes = 0, set[str]()
    places, names, secrets = _opened(connection, [prepared.event for prepared in batch])
    if places:
        ids = {theme: [p.event.id for p in batch if p.event.theme == theme] for theme in places}
        person_links.copy_applied(connection, [(theme, places[theme].theme, ids[theme]) for theme in places])
        # What was erased was erased under this name or under the next one.
        batch = _not_erased(connection, batch, erased, secrets)
        batch = [_placed(prepared, places.get(prepared.event.theme)) for prepared in batch]
    batch = _not_erased(connection, batch, erased, secrets)
    events = [prepared.event for prepared in batch]
    facts.lock(connection, _locked(events))
    for is_turn, group in groupby(batch, key=lambda prepared: isinstance(prepared.event, TurnTaken)):
        if is_turn:
            fresh += _add_turns(connection, _by_theme(group))
        else:
            fresh += sum(_apply_one(connection, prepared, homes, names) for prepared in group)
    for last in {event.theme: event for event in events if isinstance(event, FactWritten | FactsTicked)}.values():
        facts.relieve(connection, last, pressure)
    if places:
        person_links.copy_applied(connection, [(places[theme].theme, theme, ids[theme]) for theme in places])
    return fresh


def _opened(connection: Connection, events: Sequence[Event]) -> tuple[dict[str, Place], Names, list[bytes]]:
    """Take the locks that come before all others.

    Returns the places of themes, the other names of those where turns are counted, and the secrets of the marks of
    erasures.
    """
    sharing = person_links.sharing({event.theme for event in events})
    counted = {event.theme for event in events if isinstance(event, SessionEnded | Withdrawn)}
    asking = [person_links.naming(counted)] if counted else []
    answers = together(connection, [*sharing, marks.SECRETS_ASKED, *asking, *out_of_order.locks(events)])
    places, secrets, *rest = answers[len(sharing) - 1 :]
    names = person_links.names_of(rest[0].rows) if asking else {}
    return person_links.places_of(places.rows), names, marks.secrets_in(secrets.rows)


def _locked(events: Iterable[Event]) -> set[str]:
    """The themes whose facts are changed, and those whose turns are counted: none are moved or imported meanwhile."""
    return {event.theme for event in events if isinstance(event, FactEvent | SessionEnded | Withdrawn)}


def _placed(prepared: PreparedEvent, place: Place | None) -> PreparedEvent:
    """The event under the person of its account, or the new name of its theme; rows keep the account."""
    if place is None:
        return prepared
    event = prepared.event
    metadata = {**event.metadata, "linked_account": place.account} if place.account else event.metadata
    return replace(prepared, event=replace(event, theme=place.theme, metadata=metadata))


def _not_erased(
    connection: Connection, batch: Sequence[PreparedEvent], erased: set[str] | None, secrets: Sequence[bytes]
) -> list[PreparedEvent]:
    """The batch without what was erased after its events were accepted."""
    kept = marks.storable(connection, [prepared.event for prepared in batch], secrets)
    if erased is not None:
        changed = zip(batch, kept, strict=True)
        erased.update(prepared.event.id for prepared, event in changed if event is not prepared.event)
    return [
        prepared if event is prepared.event else prepare(event)
        for prepared, event in zip(batch, kept, strict=True)
        if event is not None
    ]


def _by_theme(batch: Iterable[PreparedEvent]) -> dict[str, list[Turn]]:
    """The turns of each theme, each event once: a statement sees the ledger as it was before."""
    themes: dict[str, dict[str, Turn]] = {}
    for prepared in batch:
        if isinstance(event := prepared.event, TurnTaken):
            themes.setdefault(event.theme, {})[event.id] = event, prepared.passages
    return {theme: list(once.values()) for theme, once in themes.items()}


def _add_turns(connection: Connection, themes: Mapping[str, Sequence[Turn]]) -> int:
    """Add turns, in one statement, on a cluster in one for each theme; returns how many were new to the ledger."""
    # In the same order in all processes, so that two which store the same events cannot deadlock.
    order, statement = sorted(themes), QUERIES[form_of(connection, "add_turns")]
    fresh, divided, disordered = 0, list[tuple[tuple[str, int], Sequence[Vector]]](), dict[str, list[TurnTaken]]()
    for part in [[theme] for theme in order] if is_distributed(connection) else [order]:
        turns = [(theme, turn, passages) for theme in part for turn, passages in themes[theme]]
        added = connection.execute(statement, _columns(turns)).fetchone() or {}
        new = set(zip(added["fresh_themes"], added["fresh"], strict=True))
        stored = [each for each in turns if (each[0], UUID(each[1].id)) in new]
        inserted = [(theme, passage) for theme, _, passages in stored for passage in passages]
        divided += [
            ((theme, row), passage.pieces) for row, (theme, passage) in zip(added["ids"], inserted, strict=True)
        ]
        for late in added["disordered"]:
            disordered[late] = [turn for theme, turn, _ in stored if theme == late]
        fresh += len(new)
    pieces.add(connection, "turns", divided)
    for theme, late_turns in disordered.items():
        out_of_order.settle(connection, theme, late_turns)
    return fresh


def _columns(turns: Sequence[tuple[str, TurnTaken, tuple[Passage, ...]]]) -> dict[str, Any]:
    """The events and rows of turns as `add_turns.sql` takes them: one list a column. `theme` is the first one."""
    rows = [(theme, turn, index, passage) for theme, turn, passages in turns for index, passage in enumerate(passages)]
    return {
        "theme": turns[0][0],
        "event_themes": [theme for theme, _, _ in turns],
        "events": [turn.id for _, turn, _ in turns],
        "themes": [theme for theme, _, _, _ in rows],
        "row_events": [turn.id for _, turn, _, _ in rows],
        "sessions": [turn.session_id for _, turn, _, _ in rows],
        "parents": [turn.parent_session_id for _, turn, _, _ in rows],
        "roles": [passage.role for _, _, _, passage in rows],
        "contents": [passage.content for _, _, _, passage in rows],
        # Both sides of a turn have its time; a microsecond keeps them in order. Recall knows them by it.
        "times": [turn.at + timedelta(microseconds=index) for _, turn, index, _ in rows],
        "embeddings": [half(passage.vector) for _, _, _, passage in rows],
        "words": [tokenizer.document(passage.content) for _, _, _, passage in rows],
        "metadatas": [json.dumps(dict(turn.metadata)) for _, turn, _, _ in rows],
    }


def _apply_one(connection: Connection, prepared: PreparedEvent, homes: set[str], names: Names) -> int:
    """Apply an event that is no turn; `homes` are those that the transaction has locked."""
    event = prepared.event
    match event:
        case SessionEnded():
            return _add_missing_turns(connection, event, names)
        case Delegated():
            return _add_delegation(connection, prepared, event)
    locks = _home_lock(event, homes)
    logging: list[Statement] = [*locks, (QUERIES["log_event"], {"theme": event.theme, "event": event.id})]
    if together(connection, logging)[-1].affected == 0:
        return 0
    vector = half(prepared.passages[0].vector) if prepared.passages else None
    match event:
        case Add() | Update() | Replace() | Remove():
            entries.apply(connection, event, vector)
        case Attributed():
            entries.attribute(connection, event)
        case FactWritten() | FactsTicked() | FactsPurged():
            facts.apply(connection, event, vector)
        case Withdrawn():
            out_of_order.withdraw(connection, event, names.get(event.theme, ()))
    return 1


def _home_lock(event: Event, homes: set[str]) -> list[Statement]:
    """The lock of the home of an event of entries, unless it is in `homes`, which it is then."""
    if not isinstance(event, Add | Update | Replace | Remove | Attributed) or event.home in homes:
        return []
    homes.add(event.home)
    return [(QUERIES["lock_home"], {"home": event.home})]


def _add_missing_turns(connection: Connection, event: SessionEnded, names: Names) -> int:
    missing = missing_turns(event.turns, _stored_turns(connection, event, names))
    if not missing:
        return connection.execute(QUERIES["log_event"], {"theme": event.theme, "event": event.id}).rowcount
    _drop_unanswered(connection, event, missing)
    turns = [(turn, prepare(turn).passages) for turn in out_of_order.replayed(event, missing)]
    # Parts of one event: the ledger counts it once.
    return min(1, _add_turns(connection, {event.theme: turns}))


def _drop_unanswered(connection: Connection, event: SessionEnded, missing: Iterable[tuple[str, str]]) -> None:
    """Delete a question without an answer for each of the missing turns with it: its process ended before that came."""
    coming = [question for question, answer in missing if question and answer]
    if coming:
        named = {"theme": event.theme, "session": event.session_id, "at": event.at}
        connection.execute(QUERIES["drop_unanswered"], {**named, "questions": coming})


def _stored_turns(connection: Connection, event: SessionEnded, names: Names) -> Counter[tuple[str, str]]:
    """How often the turns of a replay, and those with the same answers, are stored, under any of the names."""
    sessions, answers = [event.session_id, *event.ancestors], [answer for _, answer in event.turns]
    stored = Counter[tuple[str, str]]()
    for theme in (event.theme, *names.get(event.theme, ())):
        forms = out_of_order.unmasked(connection, theme, sessions, answers)
        parameters = {"theme": theme, "sessions": sessions, "answers": [*answers, *forms]}
        for row in connection.execute(QUERIES["count_answers"], parameters):
            answer: str = row["answer"]
            stored[row["question"], forms.get(answer, answer)] += row["times"]
    return stored


def missing_of_session(connection: Connection, event: SessionEnded) -> list[tuple[str, str]]:
    """The turns of a past session that are not stored, until the end of the transaction. Some may have no answer."""
    places, names, _ = _opened(connection, [event])
    if place := places.get(event.theme):
        event = replace(event, theme=place.theme)
    facts.lock(connection, _locked([event]))
    stored = _stored_turns(connection, event, names)
    unanswered = [question for question, answer in event.turns if not answer]
    for theme in (event.theme, *names.get(event.theme, ())):
        parameters = {"theme": theme, "sessions": [event.session_id, *event.ancestors], "questions": unanswered}
        for row in connection.execute(QUERIES["count_questions"], parameters):
            stored[row["question"], ""] += row["times"]
    return missing_turns(event.turns, stored)


def missing_turns(replayed: Iterable[tuple[str, str]], stored: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """The replayed turns that are not stored, counted as a multiset.

    Turns that are not equal to a stored one are compared by their answers alone: hosts rewrite the user's side, with
    injected context or skill bodies, but never the answer.
    """
    turns, answers = Counter(stored), Counter[str]()
    unsettled = [turn for turn in replayed if not take(turns, turn)]
    for (_, answer), times in turns.items():
        answers[answer] += times
    return [turn for turn in unsettled if not take(answers, turn[1])]


def take(left: Counter[T], wanted: T) -> bool:
    """Take one of `wanted` out of the multiset; returns whether there was one."""
    if not left[wanted]:
        return False
    left[wanted] -= 1
    return True


def _add_delegation(connection: Connection, prepared: PreparedEvent, event: Delegated) -> int:
    turn = TurnTaken(
        id=event.id, theme=event.theme, home=event.home, session_id=event.session_id, at=event.at,
        user=event.task, assistant=event.result, metadata={**event.metadata, "delegated_to": event.child_session_id},
    )  # fmt: skip
    fresh = _add_turns(connection, {event.theme: [(turn, prepared.passages)]})
    if fresh:
        parameters = {**asdict(event), "metadata": json.dumps(dict(event.metadata))}
        connection.execute(QUERIES["add_delegation"], parameters)
    return fresh


def forget(connection: Connection, theme: str, events: Sequence[str]) -> None:
    """Delete events from the ledger, by their ids; an event that comes again is then applied again."""
    connection.execute(QUERIES["forget_events"], {"theme": theme, "events": list(events)})
