"""quarantine: list the rows that look like an attack, with the reasons, show one, and release it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.text import Text

from ...errors import BadArgument, Refused
from ...hosts.provenance import described, source_of
from ...recall.quarantine import is_released, mark_of, reasons
from ...store import entries, listing, pruning
from ...store.connection.database import Connection
from ...store.listing import Filter, Listed
from ...store.queries import QUERIES, Kind
from ...text.sanitize import safe_line, visible
from ..console import Cell, Console, counted, facts_table, local_time, rows_table
from ..database import theme_named
from ..limits import COUNT_S_MAX
from .batches import Memory, Task, opened, themes_named

NAME_CHARS_MAX, SOURCE_CHARS_MAX = 40, 100
TEXT_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class Suspect:
    """A row that looks like an attack, why, and whether an operator has released it."""

    row: Listed
    reasons: tuple[str, ...]
    released: bool

    @property
    def document(self) -> dict[str, Any]:
        """The row as `--json` prints it."""
        names = ("kind", "theme", "id", "at", "content", "source", "target", "home", "role", "session_id")
        row = {name: getattr(self.row, name) for name in names}
        return {
            **row,
            "provenance": source_of(self.row.role, self.row.metadata),
            "reasons": list(self.reasons),
            "released": self.released,
        }


class _Scan:
    """Looks through rows of themes, newest first: keeps up to `limit` suspects and counts the others."""

    def __init__(self, limit: int, *, released: bool) -> None:
        self._limit, self._released = limit, released
        self.found: list[Suspect] = []
        self.more = 0

    def tasks(self, themes: Sequence[tuple[str, int, int]]) -> Iterator[Task]:
        """A task for each kind of rows of each theme, which comes with its numbers of entries and turns."""
        for theme, in_entries, in_turns in themes:
            kinds: tuple[tuple[Kind, int], ...] = (("entries", in_entries), ("turns", in_turns))
            for kind, total in kinds:
                if total:
                    yield Task(f"{kind} of {safe_line(theme, 24)}", total, _Pages(kind, theme, self._look).batch)

    def _look(self, row: Listed) -> None:
        suspect = _suspect(row)
        if suspect.reasons and suspect.released == self._released:
            if len(self.found) < self._limit:
                self.found.append(suspect)
            else:
                self.more += 1


class _Pages:
    """Gives the rows of a kind and theme to `look`, page by page, newest first."""

    def __init__(self, kind: Kind, theme: str, look: Any) -> None:
        self._kind, self._wanted, self._look = kind, Filter(theme=theme), look
        self._before: datetime | None = None
        self._below = 0

    def batch(self, connection: Connection, rows: int) -> int:
        """Look at up to so many rows; returns how many."""
        page = listing.listed(connection, self._kind, self._wanted, rows, before=self._before, below=self._below)
        for row in page:
            self._look(row)
        if page:
            self._before, self._below = page[-1].at, page[-1].id
        return len(page)


def show_all(home: Path, console: Console, args: argparse.Namespace) -> int:
    """List the suspects that are held back, or with `--released` those that are not. Returns 0.

    Raises KeyboardInterrupt after what was found until then is printed.
    """
    scan = _Scan(args.limit, released=args.released)
    with opened(home) as memory:
        with console.busy("counting"):
            themes = memory.change(lambda reading: _themes(reading, memory, args), COUNT_S_MAX)
        done = memory.run(scan.tasks(themes), sum(each[1] + each[2] for each in themes), console)
    rows = [suspect.document for suspect in scan.found]
    console.data({"rows": rows, "more": scan.more, "looked_at": done.rows, "interrupted": done.interrupted})
    if scan.found:
        console.show(rows_table([_cells(suspect) for suspect in scan.found]))
    total = len(scan.found) + scan.more
    what = "released" if args.released else "held back from recalls"
    console.show(f"{counted(total, 'row')} of {done.rows:,} {'is' if total == 1 else 'are'} {what}")
    if scan.more:
        console.say(f"{counted(scan.more, 'row')} more: --limit N lists them")
    if done.interrupted:
        console.say("interrupted before all rows were looked at")
        raise KeyboardInterrupt
    if total and not args.released:
        console.say("next: hermes-pgvector quarantine show ID, release ID or drop ID; --turn for the id of a turn")
    if not memory.settings.hide_suspicious:
        console.say("hide_suspicious is false, so agents recall these rows all the same")
    return 0


def show(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print a row and why it looks like an attack. Returns 0. Raises BadArgument when there is no such row."""
    with opened(home) as memory:
        suspect = _suspect(memory.change(lambda reading: _row(reading, memory, args)))
    console.data(suspect.document)
    row, reasons = suspect.row, ", ".join(suspect.reasons)
    facts = [
        ("Row", f"{_what(row)} {row.id}"), ("Theme", safe_line(row.theme, NAME_CHARS_MAX)),
        ("Said", local_time(row.at)), ("Source", _source(row)),
        ("Session", safe_line(row.session_id, NAME_CHARS_MAX)), ("Home", safe_line(row.home, NAME_CHARS_MAX)),
        ("Looks like", reasons or "no attack"), ("Recalled", _recalled(suspect)),
    ]  # fmt: skip
    console.show(facts_table([fact for fact in facts if fact[1]]), "", visible(row.content))
    return 0


def release(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Let a row be recalled again. Returns 0. Raises BadArgument or Refused when there is nothing to release."""
    with opened(home) as memory:
        suspect = _suspect(memory.change(lambda reading: _row(reading, memory, args)))
        row = suspect.row
        if not suspect.reasons:
            raise Refused(f"{_what(row)} {row.id} does not look like an attack; nothing is changed")
        if not suspect.released:
            values = {"theme": row.theme, "id": row.id, "content": row.content, "mark": mark_of(row.content)}
            statement = QUERIES[f"release_{row.kind}"]
            if not memory.change(lambda connection: connection.execute(statement, values).rowcount):
                raise Refused(f"{_what(row)} {row.id} has changed meanwhile; look at it again; nothing is changed")
    console.data({**suspect.document, "released": True, "changed": not suspect.released})
    outcome = "was released already" if suspect.released else "is recalled again, until its text changes"
    console.show(f"{_what(row)} {row.id} of theme {safe_line(row.theme, NAME_CHARS_MAX)} {outcome}:")
    console.show(safe_line(row.content, TEXT_CHARS_MAX))
    return 0


def _suspect(row: Listed) -> Suspect:
    return Suspect(row, reasons(row.role, row.content, row.metadata), is_released(row.content, row.metadata))


def _themes(reading: Connection, memory: Memory, args: argparse.Namespace) -> list[tuple[str, int, int]]:
    return pruning.sizes(reading, themes_named(reading, args.theme, memory.settings))


def _row(reading: Connection, memory: Memory, args: argparse.Namespace) -> Listed:
    """The row that the arguments name, in the theme that they name or in the only one with its id."""
    kind: Kind = "turns" if args.turn else "entries"
    if args.theme:
        themes = [theme_named(reading, args.theme, memory.settings)]
    else:
        known = listing.themes_with_turn if args.turn else entries.themes_with_id
        themes = known(reading, args.id)
    what = "turn" if args.turn else "entry"
    if len(themes) > 1:
        names = ", ".join(safe_line(theme, NAME_CHARS_MAX) for theme in themes)
        raise BadArgument(f"themes {names} have {what} {args.id}; give one of them as --theme")
    rows = [row for theme in themes for row in listing.listed(reading, kind, Filter(theme=theme, number=args.id), 1)]
    if not rows:
        other = "" if args.turn else "; for a turn add --turn"
        raise BadArgument(f"there is no {what} {args.id}{other}; hermes-pgvector quarantine list shows the ids")
    return rows[0]


def _source(row: Listed) -> str:
    return safe_line(described(row.source, row.role, row.metadata), SOURCE_CHARS_MAX)


def _what(row: Listed) -> str:
    return "turn" if row.kind == "turns" else "entry"


def _recalled(suspect: Suspect) -> str:
    if not suspect.reasons:
        return "yes"
    return "yes: it was released" if suspect.released else "not before a turn; by tools with include_suspicious"


def _cells(suspect: Suspect) -> dict[str, Cell]:
    row = suspect.row
    theme, source = safe_line(row.theme, NAME_CHARS_MAX), _source(row)
    about = f"{local_time(row.at)}, {theme}, {row.role or row.target}, {source}\n"
    reasons = Text(f"{', '.join(suspect.reasons)}\n", "yellow")
    text = Text.assemble((about, "dim"), reasons, safe_line(row.content, TEXT_CHARS_MAX))
    return {"": _what(row), "ID": str(row.id), "Row": text}
