"""show: one entry or turn, with its origin, its neighbours and its history."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from ...errors import BadArgument
from ...hosts import state_db
from ...hosts.provenance import described
from ...mirror.home import Home
from ...settings import Settings, load
from ...store import entries
from ...store.connection.database import Connection
from ...store.history import Past, past_entries
from ...store.listing import Details, Filter, Listed, Neighbour, details, listed, neighbours, themes_with_turn
from ...store.queries import Kind
from ...text.sanitize import safe_line, visible
from ..console import Cell, Console, counted, facts_table, labels, local_time, rows_table
from ..database import connection, theme_named
from ..limits import COUNT_S_MAX
from .listing import document

HISTORY_MAX = 50
LINE_CHARS_MAX = 300
BESIDE_CHARS_MAX = 160
NAME_CHARS_MAX = 128
METADATA_CHARS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is known of an id. `row` and `details` are None for an entry that is only in the history.

    `file` is the memory file of this home that has the entry, `title` that of its session.
    """

    row: Listed | None
    details: Details | None
    neighbours: list[Neighbour]
    history: list[Past]
    file: str = ""
    title: str = ""


def show(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print a row, its neighbours and, of an entry, its history. Returns 0.

    Raises BadArgument when nothing is known of the id.
    """
    kind: Kind = "turns" if args.turn else "entries"
    with connection(home, COUNT_S_MAX) as reading:
        theme = _theme(reading, args, load(home))
        found = look_up(reading, home, kind, theme, args.id, args.context)
    console.data({**asdict(found), "row": found.row and document(found.row)})
    if found.row is None:
        console.say(f"entry {args.id} is gone; undo brings back a version of the history")
    elif found.row.id != args.id:
        console.say(f"entry {found.row.id} has replaced entry {args.id}")
    console.show(*shown(found))
    return 0


def look_up(reading: Connection, home: Path, kind: Kind, theme: str, number: int, context: int) -> Found:
    """A row with up to `context` turns on each side. Raises BadArgument when nothing is known of it in this theme."""
    found = (_entry if kind == "entries" else _turn)(reading, home, theme, number, context)
    if found.row is None and not found.history:
        what = "entry" if kind == "entries" else "turn"
        raise BadArgument(f"theme {safe_line(theme, NAME_CHARS_MAX)} has no {what} {number}")
    session = found.row.session_id if found.row else ""
    titles = state_db.titles(home, [session]) if session else {}
    return replace(found, title=titles.get(session, ""))


def shown(found: Found) -> list[Text | Table | str]:
    """A row as text and tables for a terminal."""
    parts: list[Text | Table | str] = []
    if found.row is not None and found.details is not None:
        parts += [facts_table(facts(found)), "", visible(found.row.content)]
    if found.neighbours:
        parts += ["", rows_table([_beside(neighbour, found.row) for neighbour in found.neighbours])]
    if found.history:
        parts += ["", rows_table([_past(past) for past in found.history])]
    return parts if found.row is not None else parts[1:]


def _theme(reading: Connection, args: argparse.Namespace, settings: Settings) -> str:
    """The theme that is named, or the only one that knows the id."""
    if args.theme:
        return theme_named(reading, args.theme, settings)
    if args.turn:
        themes = themes_with_turn(reading, args.id)
    else:
        gone = (past.theme for past in past_entries(reading, HISTORY_MAX, entries=[args.id]))
        themes = entries.themes_with_id(reading, args.id) or list(dict.fromkeys(gone))
    if len(themes) == 1:
        return themes[0]
    what = "turn" if args.turn else "entry"
    if themes:
        names = ", ".join(safe_line(theme, NAME_CHARS_MAX) for theme in themes)
        raise BadArgument(f"themes {names} have {what} {args.id}; give one of them as --theme")
    if not args.turn and themes_with_turn(reading, args.id):
        raise BadArgument(f"there is no entry {args.id}, but a turn {args.id}: add --turn")
    raise BadArgument(f"there is no {what} {args.id}; `hermes-pgvector list` shows the ids")


def _entry(reading: Connection, home: Path, theme: str, number: int, context: int) -> Found:
    """An entry, or the one that has replaced it, with the turns around its time in its session."""
    entry = entries.with_id(reading, theme, number)
    if entry is None:
        history = past_entries(reading, HISTORY_MAX, theme=theme, entries=[number])
        return Found(row=None, details=None, neighbours=[], history=history)
    row, known = _row(reading, "entries", theme, entry.id)
    near = neighbours(reading, theme, row.session_id, row.at, context) if row and row.session_id and context else []
    ids = [number, entry.id, *(known.replaces if known else ())]
    history = past_entries(reading, HISTORY_MAX, theme=theme, entries=ids)
    file = Home(home).file_of(entry) if entry.home else ""
    return Found(row=row, details=known, neighbours=near, history=history, file=file)


def _turn(reading: Connection, home: Path, theme: str, number: int, context: int) -> Found:  # noqa: ARG001
    """A turn with those before and after it in its session."""
    row, known = _row(reading, "turns", theme, number)
    near = neighbours(reading, theme, row.session_id, row.at, context + 1) if row and context else []
    place = next((place for place, turn in enumerate(near) if turn.id == number), 0)
    return Found(row=row, details=known, neighbours=near[max(0, place - context) : place + context + 1], history=[])


def _row(reading: Connection, kind: Kind, theme: str, number: int) -> tuple[Listed | None, Details | None]:
    rows = listed(reading, kind, Filter(theme=theme, number=number), 1)
    return next(iter(rows), None), details(reading, kind, theme, number)


def facts(found: Found) -> list[tuple[str, str]]:
    """What is known of a row, as names and values; nothing of a row that is gone."""
    row, known = found.row, found.details
    if row is None or known is None:
        return []
    what = f"entry {row.id} of {row.target}" if row.target else f"turn {row.id} of {row.role}"
    session = safe_line(row.session_id, NAME_CHARS_MAX)
    after = safe_line(known.parent_session_id, NAME_CHARS_MAX)
    lines = [
        ("Row", f"{what}{labels(row.tags, row.expires_at)}"),
        ("Theme", safe_line(row.theme, NAME_CHARS_MAX)),
        ("Said", local_time(row.at)),
        ("Changed", changed if (changed := local_time(known.updated_at)) != local_time(row.at) else ""),
        ("Source", safe_line(described(row.source, row.role, row.metadata), LINE_CHARS_MAX)),
        ("Home", safe_line(row.home, NAME_CHARS_MAX)),
        ("File", found.file),
        ("Session", f"{session}{f', after {after}' if after else ''}"),
        ("Title", safe_line(found.title, LINE_CHARS_MAX)),
        ("Search", _searchable(known)),
        ("Metadata", safe_line(json.dumps(row.metadata), METADATA_CHARS_MAX) if row.metadata else ""),
    ]
    return [(name, value) for name, value in lines if value]


def _searchable(known: Details) -> str:
    vector = "by meaning" if known.embedded else "not by meaning yet: it has no vector"
    parts = f", with {counted(known.pieces, 'vector')} of its parts" if known.pieces else ""
    return f"{vector}{parts}, {'by words' if known.worded else 'not by words yet'}"


def _beside(turn: Neighbour, row: Listed | None) -> dict[str, Cell]:
    this = row is not None and row.role != "" and turn.id == row.id
    head = f"{local_time(turn.at)}, {turn.role}{' (this turn)' if this else ''}\n"
    return {"Around it": f"turn {turn.id}", "": Text.assemble((head, "dim"), safe_line(turn.content, BESIDE_CHARS_MAX))}


def _past(past: Past) -> dict[str, Cell]:
    text = Text(safe_line(past.content, LINE_CHARS_MAX))
    if past.replaced_by is not None:
        text.append(f"\n→ {safe_line(past.replaced_by, LINE_CHARS_MAX)}", "dim")
    return {"Undo": str(past.id), "When": local_time(past.gone_at), "How": past.how, "Before": text}
