"""Turns changes of MEMORY.md and USER.md into events: those that hooks report, and edits by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ..errors import SettingsError
from ..files import Marks, mark_name, reason
from ..hosts.config import files_in_use
from ..model import TARGETS, Add, Event, Remove, Replace, Target, now
from .entries import apply_change, diff, find_removed, in_form, parse, same_but_masked, split_contents
from .home import Home
from .snapshot import NEVER, Entries, Snapshot

log = logging.getLogger("hermes.pgvector")

ORIGIN = {"origin": "file"}
CHANGE_WAIT_S = 0.2
RECONCILE_WAIT_S = 5.0
AHEAD_MAX = timedelta(minutes=1)
OFF_RECORD_MAX = 1000


class Reconciler:
    """Gives the changes of the memory files of a home to `accept`. Safe for any thread and several processes.

    An entry that is found in a file is stored if `keeps` says so when it is found.
    """

    def __init__(
        self, home: Home, accept: Callable[[Event], bool], keeps: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._home, self._accept, self._keeps = home, accept, keeps
        # Entries written off the record that are still in the files. The snapshot has them too, but is updated later
        # than the files and may be lost.
        self._off_record = Marks(
            home.state / "unrecorded", OFF_RECORD_MAX, "which entries are off the record, and may store them"
        )
        self._ahead, self._last = False, NEVER

    def change(self, event: Add | Replace | Remove, *, stored: bool = True) -> bool:
        """Submit a change that the host has just made to a file, and apply it to the snapshot.

        With `stored` false the new entry is never stored, not even by a later `reconcile`, and the old one is removed
        from the database. Returns whether the events were accepted.
        """
        if event.target not in TARGETS:
            return not stored or self._accept(event)
        if not isinstance(event, Remove):
            # First of all: this process may end while it waits for the snapshot.
            self._off_record.change(_marks(event.target, parse(event.content)), marked=not stored)
        event = in_form(event, self._home.stored_form())
        events: list[Event] | None = None
        try:
            with self._home.snapshot(CHANGE_WAIT_S) as snapshot:
                before = snapshot.entries[event.target]
                # A later change of the home has a later time, in all its processes.
                event = replace(self._with_previous(event, before), at=self._next_time(snapshot))
                after = {**snapshot.entries, event.target: apply_change(before, event)}
                events = _events_of(event, stored=stored)
                return self._submit(snapshot, after, events)
        except OSError:
            # Submitted without the snapshot. What was accepted already is in the ledger by its id.
            events = events or _events_of(self._with_previous(self._after_wait(event), ()), stored=stored)
            return all(map(self._accept, events))

    def reconcile(self, theme: str, session_id: str) -> None:
        """Compare the files with their snapshot, and submit the differences as events of the home's own theme.

        A file that the host does not use is ignored, and its entries stay.
        """
        try:
            used = files_in_use(self._home.path)
            with self._home.snapshot(RECONCILE_WAIT_S) as snapshot:
                # Read before the files: a marked entry that is not in its file then was removed from it.
                marked = self._off_record.names()
                # Before the files are read: a hook that waits in vain for the lock dates its entry after the wait.
                at = self._next_time(snapshot)
                # Read under the lock, so that no hook changes file and snapshot in between.
                read = {target: self._home.lines(target) for target in TARGETS if used[target]}
                found = {target: lines for target, lines in read.items() if lines is not None}
                form = self._home.stored_form()
                forms = {target: {line: form(line) for line in lines} for target, lines in found.items()}
                events = [
                    event
                    for target, stored in forms.items()
                    for event in self._difference_events(snapshot, theme, session_id, at, target, stored)
                ]
                after = {target: tuple(dict.fromkeys(stored.values())) for target, stored in forms.items()}
                if self._submit(snapshot, {**snapshot.entries, **after}, events):
                    present = {mark for target, lines in found.items() for mark in _marks(target, lines)}
                    removed = (mark for mark in marked - present if mark.partition("-")[0] in found)
                    self._off_record.change(removed, marked=False)
                snapshot.compact()
        except SettingsError as error:
            log.warning("MEMORY.md and USER.md are not reconciled: %s", error)
        except OSError as error:
            log.warning("MEMORY.md and USER.md are not reconciled: %s", reason(error))

    def off_record(self, target: Target, entries: Iterable[str]) -> frozenset[str]:
        """Those of the entries of a file that were written off the record. Raises OSError."""
        marked = self._off_record.names()
        return frozenset(entry for mark, entry in _marks(target, entries).items() if mark in marked)

    def abandon(self) -> None:
        """Renew the locks in a forked child, where the threads that held them do not exist."""
        self._off_record.abandon()
        self._home.abandon()

    def _submit(self, snapshot: Snapshot, after: Entries, events: Sequence[Event]) -> bool:
        """Write the new entries and their events to the snapshot, and submit the events; whether all were taken.

        Events that a process left pending when it died are submitted first. When an event is refused, the snapshot gets
        its old entries back.
        """
        before, pending = snapshot.entries, snapshot.pending
        if not pending and not events and after == before:
            return True
        snapshot.write(after, (*pending, *events))
        self._last = max(self._last, snapshot.last)
        accepted = [self._accept(event) for event in pending]
        # A pending event that is refused every time must not stop new events.
        if all(map(self._accept, events)) and (events or all(accepted)):
            snapshot.clear_pending()
            return True
        snapshot.write(before, pending)
        return False

    def _next_time(self, snapshot: Snapshot) -> datetime:
        """The time now, or a microsecond after the last change of the home when that is later.

        After a clock was ahead, even by years, the following changes are dated ahead too, and the log says so: an entry
        that seems older than its own removal would be lost.
        """
        # When the file is lost, this process still dates its next change after those it has seen.
        last = self._last = max(self._last, snapshot.last)
        clock = now()
        before, self._ahead = self._ahead, last - clock > AHEAD_MAX
        if self._ahead and not before:
            log.warning(
                "the last change of MEMORY.md or USER.md is dated %s, but by this clock it is %s: check the clock; "
                "until it gets there, changes are dated right after the last one",
                last.isoformat(" ", "seconds"),
                clock.isoformat(" ", "seconds"),
            )
        return max(clock, last + timedelta(microseconds=1))

    def _difference_events(
        self, snapshot: Snapshot, theme: str, session_id: str, at: datetime, target: Target, forms: Mapping[str, str]
    ) -> list[Event]:
        """The events for a file, with the time `at`; `forms` are its entries, each with what is stored of it."""
        # The snapshot may lack entries that were written off the record, or have them without masks.
        off_record = self.off_record(target, forms)
        known = (entry for entry in snapshot.entries[target] if same_but_masked(entry, off_record) is None)
        added, removed = diff(forms.values(), (*known, *map(forms.__getitem__, off_record)))
        common: dict[str, Any] = {
            "theme": theme, "home": self._home.id, "session_id": session_id, "target": target, "metadata": ORIGIN,
            "at": at,
        }  # fmt: skip
        added = [entry for entry in added if self._keeps(entry)]
        changes: list[Event] = []
        for entry in removed:
            # The setting that masks entries was changed.
            if (other := same_but_masked(entry, added)) is not None:
                changes.append(Replace(previous=entry, content=other, **common))
                added.remove(other)
            else:
                changes.append(Remove(previous=entry, from_file=True, **common))
        # Later than the removals: an earlier release kept another form of the same text in the snapshot.
        common["at"] += timedelta(microseconds=1)
        return changes + [Add(content=entry, from_file=True, **common) for entry in added]

    def _after_wait(self, event: Add | Replace | Remove) -> Add | Replace | Remove:
        """The event with the time now, if it is an add whose entry is still in the file.

        Another may have found the entry there meanwhile, and its theme is that of the hook.
        """
        present = set(map(self._home.stored_form(), self._home.lines(event.target) or ()))
        if not isinstance(event, Add) or not present.issuperset(parse(event.content)):
            return event
        return replace(event, at=max(now(), self._last + timedelta(microseconds=1)))

    def _with_previous(self, event: Add | Replace | Remove, before: tuple[str, ...]) -> Add | Replace | Remove:
        """A replace or remove with its whole old entry, or with the entries of the file when that is not known."""
        if isinstance(event, Add):
            return event
        if event.previous:
            return replace(event, previous=same_but_masked(event.previous, before) or event.previous)
        # Hosts change an entry only when it alone contains `old_text`, so the file is not needed then.
        if previous := find_removed(event.old_text, before, ()):
            return replace(event, previous=previous)
        lines, form = self._home.lines(event.target) or (), self._home.stored_form()
        entries = tuple(map(form, lines))
        # What is off the record must not get into the spool, and is no row that could be mistaken for the old entry.
        known = tuple(form(line) for mark, line in _marks(event.target, lines).items() if mark not in self._off_record)
        return replace(event, previous=find_removed(event.old_text, before, entries) or "", surviving=known)


def _marks(target: Target, entries: Iterable[str]) -> dict[str, str]:
    """The entries of a file by the names of their marks."""
    return {f"{target}-{mark_name(entry)}": entry for entry in entries}


def _events_of(event: Add | Replace | Remove, *, stored: bool) -> list[Event]:
    """The events of a change for the database; unless it is `stored`, only the removal of the old entry."""
    if stored:
        return [event] if isinstance(event, Remove) else split_contents(event)
    if isinstance(event, Add):
        return []
    names = ("theme", "home", "session_id", "at", "target", "metadata", "previous", "old_text", "surviving")
    return [Remove(**{name: getattr(event, name) for name in names})]
