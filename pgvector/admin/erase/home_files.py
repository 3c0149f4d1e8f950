"""What this home holds of erased rows: dead letters, waiting writes, the snapshot, spools. It is deleted, or named."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from ...errors import BadEvent
from ...model import FILES, TARGETS, Event
from ...outbox import kept_segments
from ...outbox.codec import encode
from ...outbox.dead_letters import DeadLetter
from ...outbox.inspection import processes
from ...outbox.pending_writes import PendingWrites
from ...outbox.segments import blank_acknowledged
from ...runtime import Runtime
from ...store.connection.database import Connection
from ...store.erasure import marks
from ...store.erasure.selection import Selection
from ...store.person_links import person_of
from ..console import counted
from .receipt import Holder

SNAPSHOT_WAIT_S = 10.0


class HomeFiles:
    """The files of the home of a runtime, for one erasure that is marked in the database."""

    def __init__(self, runtime: Runtime, connection: Connection, selection: Selection) -> None:
        self._runtime, self._connection, self._selection = runtime, connection, selection
        self._home = runtime.home

    def clear(self) -> Counter[str]:
        """Delete what waits and what is remembered of the erased rows; returns how many of each kind.

        Raises Unavailable, or OSError.
        """
        return Counter(
            dead_letters=self._clear_dead_letters(), waiting_writes=self._clear_waiting_writes(),
            snapshot=self._clear_snapshot(),
        )  # fmt: skip

    def holders(self) -> Iterator[Holder]:
        """What of this home still holds erased texts, or may."""
        for target in TARGETS:
            entries = self._home.entries(target) or ()
            if found := self._erased(entries):
                lines = counted(len(found), "entry", "entries")
                yield Holder(
                    f"{FILES[target]} of this home", f"{lines}, and the snapshot of it",
                    f"delete the lines in {self._home.file(target)}, then run this command again", attention=True,
                )  # fmt: skip
        yield from self._copies_before_reliefs()
        yield from self._spools()
        copies = sorted(path for path in (self._home.state / "backups").glob("*") if path.is_file())
        if copies:
            folder = copies[0].parent
            names = f"{counted(len(copies), 'copy', 'copies')} in {folder}"
            yield Holder("backups in this home", names, f"delete them: rm -r {shlex.quote(str(folder))}")
        if (self._home.path / "state.db").exists():
            yield Holder(
                "state.db of the host", "the transcripts of its sessions", "delete the sessions there: hermes sessions"
            )

    def _copies_before_reliefs(self) -> Iterator[Holder]:
        """Name the copies of MEMORY.md and USER.md, and those of them that hold erased entries or cannot be read."""
        folder = self._home.state / "relief"
        copies = sorted(path for path in folder.glob("*") if path.is_file())
        found = {path: self._home.entries_of(str(path)) for path in copies}
        held = [path.name for path, entries in found.items() if entries is None or self._erased(entries)]
        if copies:
            what = f"{counted(len(held) or len(copies), 'copy', 'copies')} of the memory files in {folder}"
            place = shlex.quote(str(folder))
            clear = f"cd {place} && {shlex.join(['rm', *held])}" if held else f"rm -r {place}"
            yield Holder("backups of relieve in this home", what, f"delete them: {clear}", attention=bool(held))

    def _spools(self) -> Iterator[Holder]:
        """Delete what is stored already in the spools, and name those with events that wait."""
        with suppress(OSError):
            kept_segments.clear(self._home.spool)
        for process in processes(self._home.spool):
            with suppress(OSError):
                blank_acknowledged(process.folder)
            if process.waiting.events and process.pid != os.getpid():
                events = counted(process.waiting.events, "event")
                how = "they are dropped when they are stored; then run this command again"
                yield Holder(f"the spool of process {process.pid} of this home", events, how, attention=True)
        if self._runtime.settings.spool_dir:
            for folder in sorted(self._home.spool.parent.glob("*/")):
                waiting = sum(process.waiting.events for process in processes(folder))
                if folder != self._home.spool and waiting:
                    how = "they are dropped when they are stored"
                    yield Holder(f"spools in {folder}", f"{counted(waiting, 'event')} of another home, pending", how)

    def _clear_dead_letters(self) -> int:
        letters, cleared = self._runtime.dead_letters, 0
        with letters.locked():
            for letter in letters:
                rest = self._rest_of(letter)
                if rest is letter.event and not (rest is None and self._in_damaged(letter.raw)):
                    continue
                if rest is None or not letters.keep(letter.id, letter.reason, encode(rest).decode("ascii")):
                    letters.delete(letter.id)
                cleared += 1
        return cleared

    def _rest_of(self, letter: DeadLetter) -> Event | None:
        """The event of a dead letter without what was erased; the event itself when that is nothing of it."""
        event = letter.event
        if event is None:
            return None
        named: Event = event
        with suppress(BadEvent):
            named = self._runtime.context.person_key.renamed(event)
        places = self._places(named.theme)
        if self._selects(places) and _contains(asdict(event), self._selection.text):
            return None
        rest: Event | None = event
        for place in places:
            placed = rest and replace(rest, theme=place)
            [left] = marks.remaining(self._connection, [placed]) if placed else [None]
            rest = rest if left is placed else left and replace(left, theme=event.theme)
        return rest

    def _places(self, theme: str) -> tuple[str, ...]:
        """A theme, and the one that its events are stored under: of a person, or with another name."""
        return tuple(dict.fromkeys((theme, person_of(self._connection, theme))))

    def _selects(self, places: tuple[str, ...]) -> bool:
        themes = self._selection.themes
        return themes is None or any(place in themes for place in places)

    def _in_damaged(self, raw: str) -> bool:
        """Whether the text of an event that cannot be read may be of what is erased."""
        selection = self._selection
        words = [selection.text, selection.session, *(selection.themes or () if selection.whole else ())]
        return any(_contains([raw], form) for word in words if word for form in (word, json.dumps(word)[1:-1]))

    def _clear_waiting_writes(self) -> int:
        selection = self._selection
        writes, cleared = PendingWrites(self._home.state, self._runtime.settings), 0
        for write in writes.all():
            if selection.ids is not None or not self._selects(self._places(write.theme)):
                continue
            said = [write.preview, dict(write.arguments)]
            in_session = selection.session and write.session_id == selection.session
            if selection.whole or in_session or _contains(said, selection.text):
                writes.delete(write.id)
                cleared += 1
        return cleared

    def _clear_snapshot(self) -> int:
        """Delete the entries that are in no file any more; those of a file are read from it again, so they stay."""
        if not (self._home.state / "snapshot.jsonl").exists():
            return 0
        with self._home.snapshot(SNAPSHOT_WAIT_S) as snapshot:
            entries, gone = {}, 0
            for target in TARGETS:
                held = snapshot.entries.get(target, ())
                erased = self._erased(held) - set(self._home.entries(target) or ())
                entries[target] = tuple(entry for entry in held if entry not in erased)
                gone += len(held) - len(entries[target])
            kept = zip(snapshot.pending, marks.remaining(self._connection, snapshot.pending), strict=True)
            snapshot.rewrite(entries, [event for event, rest in kept if rest is event])
        return gone

    def _erased(self, entries: tuple[str, ...]) -> frozenset[str]:
        """Those of the entries of files that are erased."""
        text = self._selection.text
        found = marks.erased_entries(self._connection, entries)
        return found | {entry for entry in entries if text and _contains([entry], text)}


def _contains(values: Any, text: str) -> bool:
    """Whether a text is in one of the strings of nested values, in any case; an empty one is in none."""
    if isinstance(values, str):
        return bool(text) and text.casefold() in values.casefold()
    if isinstance(values, dict):
        return any(_contains(value, text) for value in values.values())
    return isinstance(values, list | tuple) and any(_contains(value, text) for value in values)
