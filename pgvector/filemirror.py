"""MEMORY.md and USER.md of a home, kept in step with the database in both ways that they change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from . import mirror
from .errors import SettingsError
from .home import Home
from .model import TARGETS, Add, Event, Remove, Replace, Target, now
from .settings import files_in_use

log = logging.getLogger("hermes.pgvector")

ORIGIN = {"origin": "file"}
RECONCILE_WAIT_S = 5.0


class FileMirror:
    """Turns what happens to the memory files into events for `accept`. Safe for any thread and several processes."""

    def __init__(self, home: Home, accept: Callable[[Event], bool]) -> None:
        self._home, self._accept = home, accept
        self._last = now()

    def change(self, event: Add | Replace | Remove, *, stored: bool = True) -> bool:
        """Take a change that the host has just made to a file, and keep the snapshot in step with it.

        With `stored` false nothing new gets into the database, now or by a later comparison; the old entry is removed.
        """
        if event.target not in TARGETS:
            return not stored or self._accept(event)
        try:
            with self._home.snapshot() as snapshot:
                # The order of the snapshot is that of the home: what comes later is also newer, for all its processes.
                event = replace(self._resolved(event, snapshot[event.target]), at=self._later())
                accepted = self._accept(event) if stored else self._forget(event)
                if accepted:
                    snapshot[event.target] = mirror.apply(snapshot[event.target], event)
                return accepted
        except OSError:
            # Without a snapshot the event stands for itself; should it have been taken already, its id is known.
            event = self._resolved(event, ())
            return self._accept(event) if stored else self._forget(event)

    def reconcile(self, theme: str, session_id: str) -> None:
        """Compare the files with their snapshot; what differs becomes events of the home's own theme.

        A file that the host does not use is left alone, with its entries: what it holds is nobody's wish.
        """
        try:
            used = files_in_use(self._home.path)
            with self._home.snapshot(RECONCILE_WAIT_S) as snapshot:
                for target in TARGETS:
                    if not used[target]:
                        continue
                    # Read inside: a hook that runs meanwhile changes file and snapshot together for whoever comes next.
                    entries = self._home.entries(target)
                    if entries is None:
                        continue
                    if not self._take_in(theme, session_id, target, snapshot[target], entries):
                        return
                    snapshot[target] = entries
        except SettingsError as error:
            log.warning("MEMORY.md and USER.md are not reconciled: %s", error)
        except OSError as error:
            log.warning("MEMORY.md and USER.md are not reconciled: %s", error.strerror or type(error).__name__)

    def _later(self) -> datetime:
        """The time now, and never again the same or an earlier one, though the clock be set back."""
        self._last = max(now(), self._last + timedelta(microseconds=1))
        return self._last

    def _take_in(
        self, theme: str, session_id: str, target: Target, before: tuple[str, ...], entries: tuple[str, ...]
    ) -> bool:
        changes = mirror.diff(entries, before)
        common: dict[str, Any] = {
            "theme": theme, "home": self._home.id, "session_id": session_id, "target": target, "metadata": ORIGIN,
            "at": self._later(),
        }  # fmt: skip
        events: list[Event] = [Remove(previous=entry, from_file=True, **common) for entry in changes.remove]
        events += [Add(content=entry, from_file=True, **common) for entry in changes.add]
        return all(self._accept(event) for event in events)

    def _forget(self, event: Add | Replace | Remove) -> bool:
        """Take the old entry of a change out of the database, and the new one not in."""
        if isinstance(event, Add):
            return True
        names = ("theme", "home", "session_id", "at", "target", "metadata", "previous", "old_text", "surviving")
        return self._accept(Remove(**{name: getattr(event, name) for name in names}))

    def _resolved(self, event: Add | Replace | Remove, before: tuple[str, ...]) -> Add | Replace | Remove:
        """A replace or remove that names the whole old entry where that can be told, and what the file holds now."""
        if isinstance(event, Add) or event.previous:
            return event
        entries = self._home.entries(event.target) or ()
        return replace(event, previous=mirror.resolve(event.old_text, before, entries) or "", surviving=entries)
