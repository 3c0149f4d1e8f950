"""The entries of MEMORY.md and USER.md that were written off the record."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from ..files import Marks, mark_name
from ..model import Target

log = logging.getLogger("hermes.pgvector")

ENTRIES_MAX = 1000


class OffRecordEntries:
    """Entries written off the record that are still in the memory files. Safe for any thread and several processes.

    The snapshot has them too, but is updated later than the files and may be lost. Each entry is a mark in the home;
    marks that cannot be written are kept by this process. Past 1,000 entries the oldest are forgotten.
    """

    def __init__(self, state: Path) -> None:
        self._marks = Marks(state / "unrecorded", ENTRIES_MAX)
        self._unwritten: deque[str] = deque(maxlen=ENTRIES_MAX)

    def add(self, target: Target, entries: Iterable[str]) -> None:
        """Add entries of a file."""
        names = frozenset(_name(target, entry) for entry in entries)
        try:
            self._marks.add(names)
        except OSError as error:
            self._unwritten.extend(names)
            log.warning(
                "entries written off the record are known to this process only (%s), and another process may store "
                "them: make %s writable",
                error.strerror,
                self._marks.folder,
            )

    def names(self, target: Target) -> frozenset[str]:
        """The mark names of a file's entries, for `remove_all_but`. Raises OSError."""
        names = (*self._unwritten, *self._marks.names())
        return frozenset(name for name in names if name.startswith(f"{target}-"))

    def among(self, target: Target, entries: Iterable[str]) -> tuple[str, ...]:
        """Those of `entries` that were written off the record. Raises OSError."""
        names = self.names(target)
        return tuple(entry for entry in entries if _name(target, entry) in names)

    def remove(self, target: Target, entries: Iterable[str]) -> None:
        """Remove entries that are on the record now."""
        with contextlib.suppress(OSError):
            self._remove(_name(target, entry) for entry in entries)

    def remove_all_but(self, names: Iterable[str], target: Target, entries: Iterable[str]) -> None:
        """Remove those of `names` that belong to none of `entries`, the file's entries now. Raises OSError."""
        present = frozenset(_name(target, entry) for entry in entries)
        self._remove(name for name in names if name not in present)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(ValueError):
                self._unwritten.remove(name)
            self._marks.remove(name)


def _name(target: Target, entry: str) -> str:
    return f"{target}-{mark_name(entry)}"
