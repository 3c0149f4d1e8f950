"""Outages of the memory: a session that talks during one is told of it once, and once of its end."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from cachetools import LRUCache

from ..errors import Condition
from ..files import Marks, create, make_private, mark_name
from ..model import Event, TurnTaken, now

Part: TypeAlias = Literal["database", "embedder", "outbox"]

TOLD_MAX = 5000
SESSIONS_MAX = 1000
PROBLEM_CHARS_MAX = 300
REFUSED = (
    "The memory refuses the theme of this session: nothing is recalled, and what is said is not stored. To do, add it "
    "to allowed_themes, or use another name; see: hermes-pgvector doctor"
)
_RUN = "; run: "
_EFFECTS: Mapping[Part, str] = {
    "database": "Nothing is recalled; what is said is kept on this host and stored later.",
    "embedder": "Recall searches by words only; everything is stored.",
    "outbox": "What is said now is not kept.",
}
_ENDS: Mapping[Part, str] = {
    "database": "what was said meanwhile is stored",
    "embedder": "recall searches by meaning again",
    "outbox": "what is said is kept again",
}


class Notice(NamedTuple):
    """What a person is told about the memory. `over` is whether it is about the end of an outage."""

    text: str
    over: bool


class Outages:
    """Since when parts of the memory do not work, and which sessions know. Safe for any thread.

    An outage that is shorter than `after_s` seconds is not told. Its beginning, and the sessions that were told, are
    files in `folder`: all processes of a home, and those that come later, know them. At most TOLD_MAX sessions are
    remembered, those that were told last. `parts` tell whether they work; empty while nothing is known.
    """

    def __init__(self, folder: Path, after_s: float) -> None:
        self._folder, self._after_s = folder, after_s
        self._told = Marks(folder / "told", TOLD_MAX, "that a session was told of an outage")
        self._lock = threading.Lock()
        self.parts: Mapping[Part, Callable[[], Condition]] = {}
        self._since: dict[Part, datetime] = {}
        # Whether this process has noticed an outage. It may be unable to write that down.
        self._noted = False
        # The end of the last outage of the database, and how many turns of each session were stored late.
        self._ended: datetime | None = None
        self._late: LRUCache[str, int] = LRUCache(SESSIONS_MAX)

    def notices(self, theme: str, session_id: str) -> list[Notice]:
        """What this session has to be told now; each notice is returned once."""
        session, conditions = f"{theme}:{session_id}", {part: condition() for part, condition in self.parts.items()}
        with self._lock:
            self._noted = self._noted or any(condition.problem for condition in conditions.values())
            if not self._noted and not os.path.exists(self._folder):
                return []
            found = [self._notice(part, condition, session) for part, condition in conditions.items()]
        return [notice for notice in found if notice]

    def refused(self, theme: str, session_id: str) -> list[Notice]:
        """What this session has to be told of its theme, which may not be used; it is returned once."""
        mark = mark_name(f"refused:{theme}:{session_id}")
        if mark in self._told:
            return []
        self._told.change([mark], marked=True)
        return [Notice(REFUSED, over=False)]

    def over(self, part: Part) -> None:
        """Note that a part works: an outage of it has ended."""
        with self._lock:
            self._end(part)

    def stored(self, events: Sequence[Event]) -> None:
        """Count the turns that had waited for the end of an outage."""
        ended = self._ended
        late = [event for event in events if ended and event.at <= ended and isinstance(event, TurnTaken)]
        with self._lock:
            for event in late:
                session = f"{event.theme}:{event.session_id}"
                self._late[session] = self._late.get(session, 0) + 1

    def go_on(self, theme: str, before: str, session_id: str) -> None:
        """Note that a conversation continues under another session id: it knows what it was told."""
        with self._lock:
            for part in _ENDS:
                mark = _mark(part, f"{theme}:{before}")
                if mark in self._told:
                    self._told.change([_mark(part, f"{theme}:{session_id}")], marked=True)
            if late := self._late.pop(f"{theme}:{before}", 0):
                self._late[f"{theme}:{session_id}"] = late

    def abandon(self) -> None:
        """Renew the locks in a forked child, where the threads that held them do not exist."""
        self._lock, self.parts = threading.Lock(), {}
        self._told.abandon()

    def _notice(self, part: Part, condition: Condition, session: str) -> Notice | None:
        mark = _mark(part, session)
        if condition.problem:
            since = self._begin(part, condition.since or now())
            if (now() - since).total_seconds() < self._after_s or mark in self._told:
                return None
            self._told.change([mark], marked=True)
            self._late.pop(session, None)
            return Notice(_begun(part, condition.problem, since), over=False)
        if not condition.works:
            return None
        self._end(part)
        if mark not in self._told:
            return None
        self._told.change([mark], marked=False)
        late = self._late.pop(session, 0) if part == "database" else 0
        stored = f"{late:,} {'turn' if late == 1 else 'turns'} stored" if late else _ENDS[part]
        return Notice(f"Memory is back: {stored}.", over=True)

    def _begin(self, part: Part, since: datetime) -> datetime:
        """When the outage began: the first process that noticed it wrote it down."""
        if part not in self._since:
            with contextlib.suppress(OSError):
                make_private(self._folder)
                create(self._folder / part, since.isoformat())
            self._since[part] = min(since, began(self._folder, part) or since)
        return self._since[part]

    def _end(self, part: Part) -> None:
        known = self._since.pop(part, None) is not None
        try:
            (self._folder / part).unlink()
        except OSError:
            if not known:
                return
        if part == "database":
            self._ended = now()


def began(folder: Path, part: Part) -> datetime | None:
    """When an outage began, as the processes of a home noted it; None when they noted none."""
    try:
        return datetime.fromisoformat((folder / part).read_text(encoding="ascii")).astimezone(UTC)
    except (OSError, ValueError):
        return None


def _mark(part: Part, session: str) -> str:
    return mark_name(f"{part}:{session}")


def _begun(part: Part, problem: str, since: datetime) -> str:
    from ..text.sanitize import safe_line

    what, _, command = safe_line(problem, PROBLEM_CHARS_MAX).partition(_RUN)
    remedy = command or "hermes-pgvector doctor"
    return (
        f"Memory degraded since {since.astimezone():%Y-%m-%d %H:%M %Z}: {what}. {_EFFECTS[part]} To do, run: {remedy}"
    )
