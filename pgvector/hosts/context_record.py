"""Reads from the host's record what stands in the context of a session: its system prompt and its live messages.

The record is `state.db`, as for `state_db`. A host sends a message again as the model got it at first, with the
memories before the turn; the record keeps both texts. A compression in place marks all messages as compacted and adds
those that it keeps as copies: the first ones, a summary, and the last ones. One host gives the copies a new time. The
time of a message from a messenger is that of the sender's clock, that of an answer is the host's.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from .state_db import WAIT_S_MAX, connect, home_of_record, unreadable
from .transcript import SUMMARY, decoded, kept_with_summary

MESSAGES_MAX = 5000
CHARS_MAX = 4_000_000
# So many steps of SQLite between two looks at the clock, some 50 µs.
STEPS = 10_000
# So many messages after a summary are looked for among those before the compression.
CARRIED_MAX = 4

_SESSION = "select * from sessions where id = ?"
_SHARED_PROMPT = "select prompt from system_prompts where hash = ?"
# `+id` leaves the search to the index on session, activity and time, which has all that is asked for.
_SAME = """
    select count(*), min(id), max(timestamp) from messages where session_id = ? and active = 1 and +id <= ?"""
_LIVE = """
    select id, role, content, api_content, timestamp from messages
    where session_id = ? and active = 1 and id > ? and role in ('user', 'assistant') order by id limit ?"""
_FIRST = """
    select id, timestamp from messages
    where session_id = ? and active = 0 and id > ? and role = ? and content = ? order by id limit 1"""


class LiveMessage(NamedTuple):
    """A message in the context: its text, and the text that the model got where memories were added to it."""

    id: int
    role: str
    text: str
    sent: str
    at: float
    stored: Any


class Seen(NamedTuple):
    """What was read of a session.

    These are its prompt, and the number, first id and newest time of its live messages up to the id `last`. Turns of
    the session from `since` on are in the context; all of them when it is None.
    """

    prompt: str = ""
    size: int = 0
    first: int | None = None
    newest: float | None = None
    last: int = 0
    since: datetime | None = None


class Reading(NamedTuple):
    """The messages that were added since `seen` was read before, or all when some were taken away (`afresh`).

    `seen` does not count the messages of a turn without an answer: the host may still change them.
    """

    seen: Seen
    afresh: bool
    messages: tuple[LiveMessage, ...]
    unanswered: tuple[LiveMessage, ...]


def read(home: Path, session_id: str, seen: Seen, within_s: float) -> Reading | None:
    """What a session has in its context since it was `seen`. Safe for any thread.

    None when the record does not say, holds more than a context can have, or takes longer than `within_s` seconds to
    read. The record is closed again: a forked child must not get an open one, and the host may replace it.
    """
    until = time.monotonic() + within_s
    try:
        with closing(connect(home_of_record(home, session_id) / "state.db", min(WAIT_S_MAX, within_s))) as record:
            record.set_progress_handler(lambda: time.monotonic() > until, STEPS)
            # All of one state; the host writes meanwhile.
            record.execute("begin")
            return _read(record, session_id, seen)
    except (sqlite3.Error, UnicodeError) as error:
        unreadable(error)
        return None


def _read(record: sqlite3.Connection, session_id: str, seen: Seen) -> Reading | None:
    prompt = _prompt(record, session_id)
    same = tuple(record.execute(_SAME, (session_id, seen.last)).fetchone())
    afresh = seen.size == 0 or same != (seen.size, seen.first, seen.newest)
    after = 0 if afresh else seen.last
    messages = _messages(record, session_id, after)
    if messages is None:
        return None
    answered = max((place for place, message in enumerate(messages, 1) if message.role == "assistant"), default=0)
    since, settled = _since(record, session_id, messages) if afresh else (seen.since, True)
    last = messages[answered - 1].id if answered else after
    size, first, newest = record.execute(_SAME, (session_id, last)).fetchone()
    known = Seen(prompt, size if settled else 0, first, newest, last, since)
    return Reading(known, afresh, tuple(messages[:answered]), tuple(messages[answered:]))


def _prompt(record: sqlite3.Connection, session_id: str) -> str:
    """The system prompt of a session. One host keeps equal ones once, under their hash."""
    rows = record.execute(_SESSION, (session_id,))
    session = dict(zip((column[0] for column in rows.description), rows.fetchone() or (), strict=False))
    shared = session.get("system_prompt_hash")
    prompt = (record.execute(_SHARED_PROMPT, (shared,)).fetchone() or ("",))[0] if shared else None
    return str(prompt or session.get("system_prompt") or "")


def _messages(record: sqlite3.Connection, session_id: str, after: int) -> list[LiveMessage] | None:
    """The live messages after an id; None when there are more, or longer ones, than a context can have."""
    found: list[LiveMessage] = []
    chars = 0
    for number, role, content, sent, at in record.execute(_LIVE, (session_id, after, MESSAGES_MAX + 1)):
        text = decoded(content)
        chars += len(text) + len(sent or "")
        if len(found) == MESSAGES_MAX or chars > CHARS_MAX:
            return None
        found.append(LiveMessage(number, role, text, sent or "", at if isinstance(at, int | float) else 0.0, content))
    return found


def _since(
    record: sqlite3.Connection, session_id: str, messages: Sequence[LiveMessage]
) -> tuple[datetime | None, bool]:
    """When the model first answered in the turns that are in the context after a summary; None without a summary, or in
    doubt. Earlier turns were stored before, these are stored afterwards.

    The other value is whether the next messages cannot tell more.
    """
    summary = max((place for place, message in enumerate(messages) if SUMMARY.match(message.text)), default=-1)
    carried = [message for message in messages[summary + 1 :] if message.text]
    if summary >= 0 and (kept := kept_with_summary(messages[summary].text)):
        carried.insert(0, messages[summary]._replace(text=kept, stored=kept))
    del carried[CARRIED_MAX:]
    if summary < 0 or not carried:
        return None, summary < 0
    settled = any(message.role == "assistant" for message in carried)
    times = _original_times(record, session_id, carried)
    if times[0] is None:
        # The first one was changed when it was kept, or none of them is a copy.
        changed = any(time is not None for time in times)
        return None if changed else _moment(messages[summary].at), settled
    # A message that is not a copy was written after the compression.
    written = zip(carried, times, strict=True)
    answers = [message.at if time is None else time for message, time in written if message.role == "assistant"]
    return _moment(answers[0] if answers else messages[summary].at), settled


def _original_times(record: sqlite3.Connection, session_id: str, carried: Sequence[LiveMessage]) -> list[float | None]:
    """When messages with these texts were written before the compression, in this order; None for a new text.

    If a text was said more than once, the copied message may be a later one. Then too many turns are left out, not too
    few.
    """
    times: list[float | None] = []
    after = 0
    for message in carried:
        found = record.execute(_FIRST, (session_id, after, message.role, message.stored)).fetchone()
        after = found[0] if found else after
        times.append(found[1] if found else None)
    return times


def _moment(at: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
