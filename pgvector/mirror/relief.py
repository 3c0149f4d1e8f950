"""Relief of a full MEMORY.md or USER.md: entries leave the file, and the database keeps and recalls them.

The order of the steps keeps an entry in the file, in the database, or in both, whenever a process is killed:

1. Under the lock of the host, the file is backed up, and its new text written beside it.
2. One transaction makes the entries that leave independent of the file, as `remember` does, or makes facts of them.
3. Under the lock of the snapshot, the entries leave the snapshot first and the file afterwards: no reconciliation finds
   an entry that is missing in the file. After a crash in between it finds one that the file has gained, which is stored
   already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import Refused, SchemaNotApplied, Unavailable
from ..files import reason
from ..hosts.config import file_caps, files_in_use
from ..model import FILES, TARGETS, Add, Event, FactKind, FactWritten, Remove, Target, now
from ..settings import Settings
from ..store import facts, rows
from ..store.connection.database import Connection, Database
from ..store.entries import Entry, entry_with, of_file
from ..store.passages import prepare
from ..store.person_links import person_of
from ..text.cleaning import clean
from .home import FILE_BYTES_MAX, Home
from .memory_file import MemoryFile, locked
from .reconcile import Reconciler
from .relief_plan import Move, Plan, Standing, plan
from .snapshot import NEVER

LOCK_WAIT_S = 10.0
SNAPSHOT_WAIT_S = 5.0
OFF_RECORD = "it was written off the record"
HIDDEN = "it holds what the memory does not store: the host hides it, or it is masked"
UNSTORABLE = "the memory cannot store it unchanged"
NOT_KEPT = "the setting keep leaves it out"
UNREAD = "no session has read it since it was written"
OUTDATED = "the memory has a newer fact in its place: correct or remove it"
# What may stand before a fact in a list.
_BULLETS = "-*•· "

# The kind, target and content of a line in fact notation; None for another line.
FactReader: TypeAlias = Callable[[str], tuple[FactKind, str, str] | None]


@dataclass(frozen=True, slots=True)
class Stored:
    """The rows of the entries of a file, and the entries that hold a fact which the memory has a newer one of."""

    rows: Mapping[str, list[Entry]]
    outdated: frozenset[str] = frozenset()


NOTHING = Stored({})


@dataclass(frozen=True, slots=True)
class Relieved:
    """What was done with a file, and the backup of it; None when the file is as it was."""

    plan: Plan
    backup: Path | None


class Relief:
    """Relieves the memory files of a home. `files` is its reconciler, and `keeps` says what is stored of a file.

    What no theme has yet is stored in `theme`. Lines that `fact_of` can read become facts. `problem` is why the last
    plan was made without the database.
    """

    def __init__(
        self, home: Home, database: Database, settings: Settings, files: Reconciler, keeps: Callable[[str], bool],
        *, theme: str, session_id: str = "", above_pct: int | None = None, fact_of: FactReader = lambda _: None,
    ) -> None:  # fmt: skip
        self._home, self._database, self._settings, self._files, self._keeps = home, database, settings, files, keeps
        self._theme, self._session_id, self._fact_of, self.problem = theme, session_id, fact_of, ""
        self._above_pct = settings.relief_above_pct if above_pct is None else above_pct
        self._to_pct = min(settings.relief_to_pct, self._above_pct)

    def targets(self) -> list[Target]:
        """The files that the host uses and that exist. Raises SettingsError when config.yaml cannot be read."""
        used = files_in_use(self._home.path)
        return [target for target in TARGETS if used[target] and self._home.file(target).exists()]

    def plans(self) -> list[Plan]:
        """The plan of each file that the host uses. Changes nothing, and needs no database for a first look.

        Raises Refused for a file that cannot be read, and SettingsError for a wrong cap.
        """
        files = {target: MemoryFile(self._home.file(target), FILE_BYTES_MAX) for target in self.targets()}
        try:
            with self._database.connection(self._wait_s, within_s=self._wait_s) as connection:
                found = {target: self._stored(connection, target, file) for target, file in files.items()}
            self.problem = ""
        except (Unavailable, SchemaNotApplied) as error:
            found, self.problem = {}, str(error)
        return [self._plan(target, file, found.get(target, NOTHING)) for target, file in files.items()]

    def carry_out(self) -> list[Relieved]:
        """Do what the plans say, file by file. Raises as `plans`, and Unavailable; that file is then as it was."""
        if self._settings.off_record:
            raise Refused("off_record is on, so the memory is only read; nothing is changed")
        return [self._relieve(target) for target in self.targets()]

    @property
    def _wait_s(self) -> float:
        return self._settings.recall_budget_s

    def _relieve(self, target: Target) -> Relieved:
        with locked(self._home.file(target), LOCK_WAIT_S, FILE_BYTES_MAX) as file:
            made = self._plan(target, file, NOTHING)
            if made.is_full:
                with self._database.transaction(self._wait_s, self._wait_s, within_s=2 * self._wait_s) as connection:
                    found = self._stored(connection, target, file)
                    made = self._plan(target, file, found)
                    backup = self._prepare(file, made)
                    events = [event for move in made.moves for event in self._events(target, move, found, file)]
                    rows.apply(connection, list(map(prepare, events)), facts.pressure_of(self._settings))
                    self._verify(connection, events)
            else:
                backup = self._prepare(file, made)
            if backup is not None:
                self._replace(target, file, made)
            return Relieved(made, backup)

    def _prepare(self, file: MemoryFile, made: Plan) -> Path | None:
        """Back the file up and write its new text beside it; None when the file is to stay as it is."""
        if not made.changes:
            return None
        backup = file.back_up(self._home.state / "relief", self._settings.relief_backups_max)
        file.prepare(made.after)
        return backup

    def _stored(self, connection: Connection, target: Target, file: MemoryFile) -> Stored:
        """What the database has of a file."""
        found: dict[str, list[Entry]] = {}
        theme = person_of(connection, self._theme)
        for row in of_file(connection, theme, self._home.id, target, file.entries):
            found.setdefault(row.content, []).append(row)
        outdated = {
            entry
            for entry in file.entries
            for event in self._facts(target, entry, found.get(entry, []), file.changed_at)
            if facts.outdated(connection, event)
        }
        return Stored(found, frozenset(outdated))

    def _plan(self, target: Target, file: MemoryFile, found: Stored) -> Plan:
        try:
            off_record = self._files.off_record(target, file.entries)
            with self._home.snapshot(SNAPSHOT_WAIT_S) as snapshot:
                read = None if snapshot.last == NEVER else frozenset(snapshot.entries[target])
        except OSError as error:
            raise Unavailable(f"the state of {file.path} cannot be read: {error.strerror}") from None
        form = self._home.stored_form()

        def standing(entry: str) -> Standing:
            stored = found.rows.get(entry, [])
            stays = self._why_it_stays(entry, form, off_record, read, is_stored=bool(stored))
            lines = entry.splitlines()
            noted = tuple(line for line in lines if self._read_fact(line))
            return Standing(
                changed_at=max((row.updated_at for row in stored), default=file.changed_at),
                stays=stays or (OUTDATED if entry in found.outdated else ""),
                facts=tuple(line.lstrip(_BULLETS) for line in noted),
                rest="\n".join(line for line in lines if line not in noted).strip(),
            )

        return plan(
            target, file.entries, standing, chars_max=file_caps(self._home.path)[target], above_pct=self._above_pct,
            to_pct=self._to_pct, now=now(),
        )  # fmt: skip

    def _why_it_stays(
        self, entry: str, form: Callable[[str], str], off_record: frozenset[str], read: frozenset[str] | None,
        *, is_stored: bool,
    ) -> str:  # fmt: skip
        """Why an entry must not leave the file; empty when it may. `read` is None before the first session."""
        if entry in off_record:
            return OFF_RECORD
        if form(entry) != entry:
            return HIDDEN
        if len(entry) > self._settings.content_chars_max or clean(entry) != entry:
            return UNSTORABLE
        if read is not None and entry not in read:
            # A hook may be on its way with the theme that it belongs to.
            return UNREAD
        return "" if is_stored or self._keeps(entry) else NOT_KEPT

    def _read_fact(self, line: str) -> tuple[FactKind, str, str] | None:
        return self._fact_of(line.strip().lstrip(_BULLETS))

    def _facts(self, target: Target, entry: str, stored: Sequence[Entry], at: datetime) -> Iterator[FactWritten]:
        """The facts of an entry in the themes that have it, or in that of the home, as old as the entry is there."""
        for theme, written_at in {row.theme: row.updated_at for row in stored}.items() or [(self._theme, at)]:
            for kind, about, content in filter(None, map(self._read_fact, entry.splitlines())):
                yield FactWritten(
                    theme=theme, kind=kind, target=about, content=content, at=written_at,
                    metadata={"relieved_from": FILES[target]},
                )  # fmt: skip

    def _events(self, target: Target, move: Move, found: Stored, file: MemoryFile) -> Iterator[Event]:
        """What keeps an entry in the themes that have it, or in that of the home when none has."""
        stored = found.rows.get(move.entry, [])
        themes = {row.theme: row.updated_at for row in stored} or {self._theme: now()}
        common: dict[str, Any] = {"session_id": self._session_id, "target": target}
        if not move.facts:
            origin = {"origin": "remember", "relieved_from": FILES[target]}
            for theme, at in themes.items():
                yield Add(theme=theme, content=move.entry, metadata=origin, at=at, **common)
            return
        yield from self._facts(target, move.entry, stored, file.changed_at)
        # The row of the entry would go on saying what a later fact supersedes.
        last = max((row.updated_at for row in stored), default=now())
        common |= {"home": self._home.id, "at": max(now(), last + timedelta(microseconds=1))}
        yield Remove(theme=next(iter(themes)), previous=move.entry, from_file=True, **common)
        if move.rest:
            for theme in themes:
                yield Add(theme=theme, content=move.rest, **common)

    def _verify(self, connection: Connection, events: Iterable[Event]) -> None:
        """Raise Refused, which ends the transaction, unless the entries are stored and independent of the file."""
        for event in events:
            if isinstance(event, Add) and not event.home:
                row = entry_with(connection, person_of(connection, event.theme), event.target, event.content)
                if row is None or row.home:
                    raise Refused(f"the database does not keep an entry of {FILES[event.target]}; nothing is changed")

    def _replace(self, target: Target, file: MemoryFile, made: Plan) -> None:
        rest = {move.entry: move.rest for move in made.moves}
        try:
            with self._home.snapshot(SNAPSHOT_WAIT_S) as snapshot:
                before, pending = snapshot.entries, snapshot.pending
                left = tuple(filter(None, (rest.get(entry, entry) for entry in before[target])))
                snapshot.write({**before, target: left}, pending)
                try:
                    file.replace()
                except Unavailable:
                    snapshot.write(before, pending)
                    raise
        except OSError as error:
            why = reason(error)
            raise Unavailable(f"the snapshot cannot be written: {why}; {FILES[target]} is as it was") from None
