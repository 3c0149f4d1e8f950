"""Which entries an agent saved after it had read third parties."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime

from ..hosts.tool_calls import Saving
from ..model import Attributed, Event, now
from . import off_record

# Hosts hand over a turn while the next one is running already, and a session ends before its last turn was handed over.
LATE_MAX = 3


class Attribution:
    """Tells which rows of a conversation these are. Safe for any thread; `accept(event)` makes an event durable.

    Rows are known by the ids of calls, which some servers of models repeat in each turn. So only those count that were
    written since the last turns were handed over.
    """

    def __init__(self, accept: Callable[[Event], bool]) -> None:
        self._accept = accept
        self._noted: deque[datetime] = deque([now()], LATE_MAX)

    def note(self, saved: Iterable[Saving], *, theme: str, home: str, session_id: str) -> None:
        """Have the entries known as made with texts of third parties that calls of a turn saved, or of an interrupted
        one before it."""
        since = self._noted[0].isoformat()
        self._noted.append(now())
        keys: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for saving in saved:
            if not off_record.unrecorded(saving.question):
                keys.setdefault((saving.theme or theme, saving.tools), []).append(saving.call_id)
        for (named, tools), calls in keys.items():
            self._accept(
                Attributed(
                    theme=named, home=home, session_id=session_id, calls=tuple(calls), since=since,
                    metadata={"tools": list(tools)},
                )
            )  # fmt: skip
