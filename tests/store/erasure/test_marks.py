"""Events that were accepted before an erasure are stored without what was erased, whenever they come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.model import (
    Add,
    Delegated,
    Event,
    FactWritten,
    Remove,
    Replace,
    SessionEnded,
    TurnTaken,
    Update,
)
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import rows
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.erasure import marks
from hermes_memory_pgvector.store.erasure.marks import MarkKind, without_erased
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.text.masks import masked

ERASED = datetime(2026, 5, 1, tzinfo=UTC)
EARLY, LATE = ERASED - timedelta(hours=1), ERASED + timedelta(hours=1)
GONE = ("gone", "also gone")


def erased(*known: tuple[MarkKind, str]) -> Callable[[MarkKind, str], datetime | None]:
    return lambda kind, text: ERASED if (kind, text) in known else None


TEXTS = erased(*((kind, text) for kind in ("turns", "entries") for text in GONE), ("facts", "t: gone"))


def turn(user: str, assistant: str, at: datetime = EARLY, session: str = "s") -> TurnTaken:
    return TurnTaken(theme="ops", session_id=session, user=user, assistant=assistant, at=at)


@pytest.mark.parametrize("mark", [("theme", ""), ("session", "s")])
def test_early_events_of_an_erased_theme_or_session_are_dropped_and_late_ones_are_not(
    mark: tuple[MarkKind, str],
) -> None:
    for at, rest in ((EARLY, None), (ERASED, None), (LATE, True)):
        event = turn("a", "b", at)
        assert without_erased(event, erased(mark)) is (event if rest else None)
    assert without_erased(turn("a", "b", session="other"), erased(("session", "s"))) is not None


def test_the_transcript_of_an_erased_session_is_dropped_whenever_it_comes() -> None:
    for session, ancestors in (("s", ()), ("new", ("s",))):
        ended = SessionEnded(theme="ops", session_id=session, ancestors=ancestors, turns=(("a", "b"),), at=LATE)
        assert without_erased(ended, erased(("session", "s"))) is None


@pytest.mark.parametrize(
    ("event", "rest"),
    [
        (turn("gone", "b"), ("", "b")),
        (turn("a", "gone"), ("a", "")),
        (turn("gone", "also gone"), None),
        (turn("gone", ""), None),
        (Add(theme="ops", target="memory", content="gone", at=EARLY), None),
        (Update(theme="ops", entry_id=1, content="gone", at=EARLY), None),
        (FactWritten(theme="ops", kind="V", target="t", content="gone", at=EARLY), None),
        (Delegated(theme="ops", session_id="x", task="a", result="gone", at=EARLY), None),
    ],
)
def test_an_event_loses_what_was_erased_of_it(event: Event, rest: tuple[str, str] | None) -> None:
    found = without_erased(event, TEXTS)
    if rest is None:
        assert found is None
    else:
        assert isinstance(found, TurnTaken)
        assert (found.user, found.assistant, found.id) == (*rest, event.id)


def test_an_entry_that_was_replaced_by_an_erased_text_is_removed() -> None:
    found = without_erased(Replace(theme="ops", target="user", content="gone", previous="old", at=EARLY), TEXTS)
    assert isinstance(found, Remove)
    assert (found.previous, found.target, found.at) == ("old", "user", EARLY)


_TEXT = st.sampled_from((*GONE, "a", "b", ""))


@given(st.lists(st.tuples(_TEXT, _TEXT), max_size=8), st.sampled_from((EARLY, LATE)))
def test_no_erased_text_is_left_in_a_transcript_and_every_other_answer_is(
    turns: list[tuple[str, str]], at: datetime
) -> None:
    event = SessionEnded(theme="ops", session_id="s", turns=tuple(turns), at=at)
    found = without_erased(event, TEXTS)
    left = found.turns if isinstance(found, SessionEnded) else ()
    assert not {text for pair in left for text in pair} & set(GONE)
    assert [answer for _, answer in left if answer] == [a for _, a in turns if a and a not in GONE]
    if not {text for pair in turns for text in pair} & set(GONE) and all(any(pair) for pair in turns):
        assert found is event


def test_an_event_is_dropped_when_it_is_stored_and_counted(database: str, tmp_path: Path) -> None:
    memory = Database(Settings(dsn=database), tmp_path)  # type: ignore[arg-type]

    def store(*events: Event) -> int:
        with memory.transaction(10, 20) as connection:
            return rows.apply(connection, list(map(prepare, events)))

    try:
        with memory.transaction(10, 20) as connection:
            marks.add(connection, [("ops", "theme", ""), ("lab", "entries", "gone")])
        early, between = datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC) + timedelta(seconds=1)
        ended = SessionEnded(theme="ops", session_id="s9", turns=(("a", "b"),))
        assert store(turn("a", "b", early, "s9"), turn("a", "b", early, "s9"), ended) == 0
        # The turn that was dropped is in the transcript of its session, too.
        assert store(ended) == 0
        # But what was said after the erasure is kept, also when it is stored later than the dropped turn.
        assert store(turn("e", "f", between, "s9")) == 1
        now = datetime.now(UTC) + timedelta(hours=1)
        assert store(turn("c", "d", now), Add(theme="lab", target="memory", content="kept", at=early)) == 2
        # A line of a file is no new statement: it is known by its text, in every theme.
        assert store(Add(theme="home", target="memory", content="gone", from_file=True, at=now)) == 0
        assert store(Add(theme="home", target="memory", content="gone", at=now)) == 1
        with memory.connection(10) as connection:
            counts = {(one.theme, one.dropped) for one in marks.listed(connection, 10)}
            assert marks.erased_entries(connection, ["gone", "kept"]) == {"gone"}
    finally:
        memory.close()
    assert counts == {("ops", 4), ("lab", 0)}
    with psycopg.connect(database) as connection:
        stored = connection.execute("select content from conversations order by ts").fetchall()
        assert stored == [("e",), ("f",), ("c",), ("d",)]
        keys = connection.execute("select key::text || kind from memory_erasures").fetchall()
        assert not any("676f6e65" in key for (key,) in keys)


@pytest.mark.parametrize("at_first", [True, False])
def test_an_erased_secret_does_not_come_back_when_the_setting_of_masks_is_changed(
    at_first: bool, database: str, tmp_path: Path
) -> None:
    said = f"The deploy uses OPENAI_API_KEY=sk-proj-{'a1B2c3D4' * 6}"
    erased_form, other_form = (masked(said), said) if at_first else (said, masked(said))
    memory = Database(Settings(dsn=database), tmp_path)  # type: ignore[arg-type]
    try:
        with memory.transaction(10, 20) as connection:
            marks.add(connection, [("ops", "turns", erased_form)])
        for form in (erased_form, other_form):
            ended = SessionEnded(theme="ops", session_id="s", turns=(("a", form),))
            with memory.transaction(10, 20) as connection:
                assert rows.apply(connection, [prepare(ended)]) == 0
    finally:
        memory.close()
