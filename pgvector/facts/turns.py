"""The facts of running sessions: hot facts as a block before a turn, and the turns that close scopes.

Every process imports this at its start, so the functions import what takes long to import.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cachetools import LRUCache

from ..errors import SchemaNotApplied, Unavailable
from ..model import Caller, Event, FactsTicked, now
from ..settings import Settings

if TYPE_CHECKING:
    from datetime import datetime

    from ..store.connection.database import Database

READ_S_MIN = 0.1
SESSIONS_MAX = 1000


class FactTurns:
    """The facts of the sessions of a process. Safe for any thread.

    `accept` makes an event durable, `ready(s)` waits until the `database()` can be used, `own` are the themes with the
    rows of a theme.
    """

    def __init__(
        self,
        settings: Settings,
        accept: Callable[[Event], bool],
        database: Callable[[], Database],
        ready: Callable[[float], bool],
        own: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._settings, self._accept = settings, accept
        self._database, self._ready, self._own = database, ready, own
        self._lock = threading.Lock()
        self._turns: LRUCache[tuple[str, str], int] = LRUCache(SESSIONS_MAX)

    def block(self, theme: str, chars_max: int, budget_s: float) -> str:
        """The hot facts of a theme; empty where they are not wanted, and when the database does not answer in time."""
        from . import state

        until = time.monotonic() + budget_s
        if not self._settings.injects_facts or not self._ready(budget_s):
            return ""
        left_s = max(READ_S_MIN, until - time.monotonic())
        try:
            with self._database().connection(left_s, within_s=left_s) as connection:
                current = state.read(connection, self._own(theme)[0], self._settings)
        except (Unavailable, SchemaNotApplied):
            return ""
        return state.text_of(current, self._settings, chars_max) if current.count else ""

    def begin(self, caller: Caller, turn: int, message: str, began: datetime | None = None) -> None:
        """Count a turn that the host began: scopes close by silence, and by a message that says so.

        Only facts from before it `began` become cold: its agent may have written others by now.
        """
        from .closing_signals import closes

        if caller.off_record:
            return
        with self._lock:
            self._turns[caller.theme, caller.session_id] = turn
        at, session = began or now(), caller.session_id
        self._accept(FactsTicked(theme=caller.theme, session_id=session, at=at, turn=turn, closing=closes(message)))

    def turn(self, theme: str, session_id: str) -> int | None:
        """The number of the turn that the host began last; None where no host counts the turns of a session."""
        with self._lock:
            return self._turns.get((theme, session_id))
