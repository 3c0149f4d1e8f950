"""MEMORY.md and USER.md of a home, kept in step with the database in both ways that they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ..errors import SettingsError
from ..model import TARGETS, Add, Event, Remove, Replace, Target, now
from ..settings import files_in_use
from .entries import apply, as_in_file, diff, parse, parted, resolve
from .home import Home
from .off_record_entries import OffRecordEntries
from .snapshot import Entries

log = logging.getLogger("hermes.pgvector")

ORIGIN = {"origin": "file"}
CHANGE_WAIT_S = 0.2
RECONCILE_WAIT_S = 5.0
AHEAD_MAX = timedelta(minutes=1)


class Reconciler:
    """Turns what happens to the memory files into events for `accept`. Safe for any thread and several processes."""

    def __init__(self, home: Home, accept: Callable[[Event], bool]) -> None:
        self._home, self._accept = home, accept
        self._off_record = OffRecordEntries(home.state)
        self._ahead = False

    def change(self, event: Add | Replace | Remove, *, stored: bool = True) -> bool:
        """Take a change that the host has just made to a file, and keep the snapshot in step with it.

        With `stored` false nothing new gets into the database, now or by a later comparison; the old entry is removed.
        """
        if event.target not in TARGETS:
            return not stored or self._accept(event)
        snapshot = self._home.snapshot
        if not isinstance(event, Remove):
            event = replace(event, content=as_in_file(event.content))
            # Before all else: the snapshot may be out of reach, and this process may end while it waits.
            if stored:
                self._off_record.remove(event.target, parse(event.content))
            else:
                self._off_record.add(event.target, parse(event.content))
        try:
            with snapshot.held(CHANGE_WAIT_S):
                before = snapshot.entries[event.target]
                # The order of the snapshot is that of the home: what comes later is also newer, for all its processes.
                event = replace(self._resolved(event, before), at=self._later())
                after = {**snapshot.entries, event.target: apply(before, event)}
                return self._hand_over(after, _changes(event, stored=stored))
        except OSError:
            # Without a snapshot the event stands for itself; should it have been taken already, its id is known.
            event = self._resolved(event, ())
            return all(map(self._accept, _changes(event, stored=stored)))

    def reconcile(self, theme: str, session_id: str) -> None:
        """Compare the files with their snapshot; what differs becomes events of the home's own theme.

        A file that the host does not use is left alone, with its entries: what it holds is nobody's wish.
        """
        snapshot = self._home.snapshot
        try:
            used = files_in_use(self._home.path)
            with snapshot.held(RECONCILE_WAIT_S):
                # What is kept before the files are read stands in them, or is gone from them again.
                written = {target: self._off_record.names(target) for target in TARGETS}
                # Read inside: a hook that runs meanwhile changes file and snapshot together for whoever comes next.
                read = {target: self._home.entries(target) for target in TARGETS if used[target]}
                found = {target: entries for target, entries in read.items() if entries is not None}
                events = [
                    event
                    for target, entries in found.items()
                    for event in self._differences(theme, session_id, target, self._known(target, entries), entries)
                ]
                if self._hand_over({**snapshot.entries, **found}, events):
                    for target, entries in found.items():
                        self._off_record.remove_all_but(written[target], target, entries)
                snapshot.shorten()
        except SettingsError as error:
            log.warning("MEMORY.md and USER.md are not reconciled: %s", error)
        except OSError as error:
            log.warning("MEMORY.md and USER.md are not reconciled: %s", error.strerror or type(error).__name__)

    def _hand_over(self, after: Entries, events: Sequence[Event]) -> bool:
        """Note what the files hold now together with the events that say so, and have them accepted, after those of a
        process that died at this. When one is refused, the snapshot stays as it was.
        """
        snapshot = self._home.snapshot
        before, begun = snapshot.entries, snapshot.begun
        if not begun and not events and after == before:
            return True
        snapshot.note(after, (*begun, *events))
        taken = [self._accept(event) for event in begun]
        # One of the dead that is refused for good must not keep the living from theirs.
        if all(map(self._accept, events)) and (events or all(taken)):
            snapshot.finish()
            return True
        snapshot.note(before, begun)
        return False

    def _later(self) -> datetime:
        """The time now, or right after the last change of the home when that is later, whatever its clocks say.

        Where a clock was ahead, even by years, what follows is dated ahead too: that is said, and does less harm than
        an entry that is lost because it seems older than its own removal.
        """
        last, clock = self._home.snapshot.last, now()
        before, self._ahead = self._ahead, last - clock > AHEAD_MAX
        if self._ahead and not before:
            log.warning(
                "the last change of MEMORY.md or USER.md is dated %s, but by this clock it is %s: check the clock; "
                "until it gets there, changes are dated right after the last one",
                last.isoformat(" ", "seconds"),
                clock.isoformat(" ", "seconds"),
            )
        return max(clock, last + timedelta(microseconds=1))

    def _known(self, target: Target, entries: tuple[str, ...]) -> tuple[str, ...]:
        """The entries of the snapshot, and those of the file that were written off the record: it may not hold them."""
        return (*self._home.snapshot.entries[target], *self._off_record.among(target, entries))

    def _differences(
        self, theme: str, session_id: str, target: Target, before: tuple[str, ...], entries: tuple[str, ...]
    ) -> list[Event]:
        changes = diff(entries, before)
        common: dict[str, Any] = {
            "theme": theme, "home": self._home.id, "session_id": session_id, "target": target, "metadata": ORIGIN,
            "at": self._later(),
        }  # fmt: skip
        gone: list[Event] = [Remove(previous=entry, from_file=True, **common) for entry in changes.remove]
        return gone + [Add(content=entry, from_file=True, **common) for entry in changes.add]

    def _resolved(self, event: Add | Replace | Remove, before: tuple[str, ...]) -> Add | Replace | Remove:
        """A replace or remove that names the whole old entry, or what the file holds now where that cannot be told."""
        if isinstance(event, Add) or event.previous:
            return event
        # Hosts change nothing unless one entry alone holds `old_text`: where that is so here, the file tells no more.
        if previous := resolve(event.old_text, before, ()):
            return replace(event, previous=previous)
        entries = self._home.entries(event.target) or ()
        return replace(event, previous=resolve(event.old_text, before, entries) or "", surviving=entries)


def _changes(event: Add | Replace | Remove, *, stored: bool) -> list[Event]:
    """What a change does to the database; unless it is `stored`, the old entry goes out and the new one not in."""
    if stored:
        return [event] if isinstance(event, Remove) else parted(event)
    if isinstance(event, Add):
        return []
    names = ("theme", "home", "session_id", "at", "target", "metadata", "previous", "old_text", "surviving")
    return [Remove(**{name: getattr(event, name) for name in names})]
