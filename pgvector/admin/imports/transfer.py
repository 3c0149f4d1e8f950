"""Rows on their way into a database: in batches, with progress; what is refused is named, the rest goes on."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from ...embedding import factory
from ...errors import BadEvent, DatabaseUnavailable, ModelChanged, SettingsError
from ...settings import Settings
from ...store import person_links, renames
from ...store.archive import reading, writing
from ...store.archive.lines import Line
from ...store.archive.writing import Batch, Destination
from ...store.connection.database import Connection, Database
from ...store.schema.verification import Origin
from ..console import Console

BATCH_S_MAX = 120.0
# A batch that meets rows of agents in another order is undone, and tried again.
TRIES, PAUSE_S = 3, 1.0
# The rows that give themes other names: where the name is, and what takes it.
NAMED: Mapping[str, tuple[str, Callable[[Connection, str, str], bool | None]]] = {
    "rename": ("new", renames.take),
    "link": ("person", person_links.take),
}
# A secret of the marks of what was erased.
_SECRET = re.compile("[0-9a-f]{64}")


@dataclass(slots=True)
class Transfer:
    """Stores rows in a database, and counts them: all and new ones by their kind, and the lines that are refused.

    `in_use` are the old names of renamed themes, and the linked accounts, that are themes of their own here.
    """

    database: Database
    to: Destination
    found: Counter[str] = field(default_factory=Counter)
    new: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[int, str]] = field(default_factory=list)
    in_use: list[str] = field(default_factory=list)

    def run(self, lines: Iterable[Line], console: Console, total: int | None = None) -> None:
        """Store the rows. Raises DatabaseUnavailable; what is stored then stays, and a further run goes on."""
        with console.progress() as progress:
            task = progress.add_task("rows", total=total)
            for batch in writing.batches(lines):
                started = time.monotonic()
                others = self._store(batch)
                progress.update(task, completed=sum(self.found.values()))
                if others and not self.to.dry_run:
                    # Half of the time belongs to the agents.
                    time.sleep(time.monotonic() - started)

    def _store(self, batch: Batch) -> bool:
        """Store a batch, at the third try at the latest. Returns whether other processes use the database."""
        erased = self.to.erased
        for _ in range(TRIES - 1):
            try:
                return self._store_once(batch)
            except DatabaseUnavailable:
                self.to.erased = erased
                time.sleep(PAUSE_S)
        return self._store_once(batch)

    def _store_once(self, batch: Batch) -> bool:
        """Store a batch; one that is refused in halves."""
        try:
            vectors = None if self.to.dry_run else self.to.vectors
            with self.database.transaction(statement_timeout_s=BATCH_S_MAX, vectors=vectors) as connection:
                named = batch.kind in NAMED and not self.to.theme
                new = self._name(connection, batch) if named else writing.store(connection, batch, self.to)
                others = writing.others_work(connection)
                if self.to.dry_run:
                    connection.execute("rollback")
        except ModelChanged:
            # The rest goes without vectors, which agents compute.
            self.to.vectors = None
            return self._store(batch)
        except BadEvent as error:
            if len(batch.lines) == 1:
                self.found[batch.kind] += 1
                self.wrong.append((batch.lines[0].number, str(error)))
                return False
            half = len(batch.lines) // 2
            first = self._store(Batch(batch.kind, batch.theme, batch.lines[:half]))
            return self._store(Batch(batch.kind, batch.theme, batch.lines[half:])) or first
        self.found[batch.kind] += len(batch.lines)
        self.new[batch.kind] += new
        return others

    def _name(self, connection: Connection, batch: Batch) -> int:
        """Rename or link a theme as the archive has it; returns how many names are new."""
        column, take = NAMED[batch.kind]
        taken = [take(connection, batch.theme, line.row[column]) for line in batch.lines]
        if None in taken:
            self.in_use.append(batch.theme)
        return sum(map(bool, taken))


def destination(database: Database, settings: Settings, manifest: Mapping[str, Any], **options: Any) -> Destination:
    """Where an archive with this manifest goes. Its vectors are taken when their model is that of the database.

    The model of an archive becomes that of a database without one, if the home uses the same.
    """
    with database.connection() as connection:
        state = database.verify(connection)
        here = reading.origin(connection)
    to = Destination(
        origin="" if manifest.get("database") == here else str(manifest.get("database")),
        erasure_keys=[str(key) for key in manifest.get("erasure_keys") or () if _SECRET.fullmatch(str(key))],
        **options,
    )
    model = manifest.get("model")
    if manifest.get("vectors") and manifest.get("dimensions") == state.dimensions:
        held = state.embedding_model or _model(settings, str(model))
        if held == model and not to.dry_run:
            held = database.claim_model(str(model))
        to.vectors = Origin(str(model), state.dimensions) if held == model else None
    return to


def _model(settings: Settings, offered: str) -> str:
    """The model that this home would fill a database with, which has the vectors of `offered`; empty without one."""
    try:
        with closing(factory.build(settings, held=offered)) as embedder:
            return embedder.model
    except SettingsError:
        return ""
