"""What stands in the context of running sessions, by the host's record. Before a turn, new messages alone are read."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from cachetools import LRUCache

from ..hosts import context_record
from ..hosts.context_record import Seen
from ..hosts.environment import scrubber
from .shown import Shown, lines_of

SESSIONS_MAX = 100
NOTHING = Shown()


@dataclass(frozen=True, slots=True)
class Context:
    """The texts in a context. Turns of the session from `since` on are in it; all of them when it is None."""

    shown: Shown = NOTHING
    since: datetime | None = None

    def prompt_only(self) -> Context:
        """The context of a client that sends the messages itself: the record has not what it leaves out."""
        return Context(Shown(self.shown.prompt))


@dataclass(frozen=True, slots=True)
class _Known:
    seen: Seen
    shown: Shown


class ContextReader:
    """Reads the contexts of the sessions of one home. Safe for any thread.

    Of each kind of text, the newest `shown_max` are kept. Where the record says nothing, the context seems empty.
    """

    def __init__(self, home: Path, shown_max: int) -> None:
        self._home, self._shown_max = home, shown_max
        self._lock = threading.Lock()
        self._known: LRUCache[str, _Known] = LRUCache(SESSIONS_MAX)

    def read(self, session_id: str, within_s: float) -> Context:
        """What a session has in its context now. Takes a few milliseconds, and at most about `within_s` seconds."""
        with self._lock:
            known = self._known.get(session_id) or _Known(Seen(), NOTHING)
        reading = context_record.read(self._home, session_id, known.seen, within_s)
        if reading is None:
            return Context()
        if not self._shown_max:
            return Context(NOTHING, reading.seen.since)
        shown = known.shown
        if reading.seen.prompt != known.seen.prompt or reading.afresh:
            lines = lines_of(scrubber()(reading.seen.prompt))
            shown = Shown(lines) if reading.afresh else replace(shown, prompt=lines)
        shown = shown.with_messages(reading.messages, self._shown_max)
        with self._lock:
            self._known[session_id] = _Known(reading.seen, shown)
        return Context(shown.with_messages(reading.unanswered, self._shown_max), reading.seen.since)
