"""show: one entry or turn, with its origin, its neighbours and its history."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.text import Text

from ...errors import BadArgument
from ...hosts import state_db
from ...mirror.home import Home
from ...settings import Settings, load
from ...store import entries
from ...store.connection.database import Connection
from ...store.history import Past, past_entries
from ...store.listing import Details, Filter, Listed, Neighbour, details, listed, neighbours, themes_with_turn
from ...text.sanitize import safe_line, visible
from ..console import Cell, Console, counted, facts_table, labels, local_time, rows_table
from ..database import connection, theme_named
from .listing import document

HISTORY_MAX = 50
LINE_CHARS_MAX = 300
NAME_CHARS_MAX = 128
METADATA_CHARS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the database has of an id. `row` and `details` are None for an entry that is only in the history."""

    theme: str
    row: Listed | None
    details: Details | None
    entry: entries.Entry | None
    neighbours: list[Neighbour]
    history: list[Past]


def show(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print a row, its neighbours and, of an entry, its history. Returns 0.

    Raises BadArgument when nothing is known of the id.
    """
    with connection(home) as reading:
        theme = _theme(reading, args, load(home))
        found = (_turn if args.turn else _entry)(reading, theme, args.id, args.context)
    file = Home(home).file_of(found.entry) if found.entry and found.entry.home else ""
    session = found.row.session_id if found.row else ""
    title = state_db.titles(home, [session]).get(session, "") if session else ""
    console.data(
        {
            "row": found.row and document(found.row),
            "details": found.details and asdict(found.details),
            "file": file,
            "title": title,
            "neighbours": [asdict(neighbour) for neighbour in found.neighbours],
            "history": [asdict(past) for past in found.history],
        }
    )
    if found.row is None:
        console.say(f"entry {args.id} is gone; undo brings back a version of the history")
    else:
        console.show(facts_table(_facts(found, file, title)), "", visible(found.row.content))
        if not args.turn and found.row.id != args.id:
            console.say(f"entry {found.row.id} has replaced entry {args.id}")
    if found.neighbours:
        console.show("", rows_table([_beside(neighbour, found.row) for neighbour in found.neighbours]))
    if found.history:
        console.show("", rows_table([_past(past) for past in found.history]))
    return 0


def _theme(reading: Connection, args: argparse.Namespace, settings: Settings) -> str:
    """The theme that is named, or the only one that knows the id."""
    if args.theme:
        return theme_named(reading, args.theme, settings)
    if args.turn:
        themes = themes_with_turn(reading, args.id)
    else:
        gone = (past.theme for past in past_entries(reading, HISTORY_MAX, entries=[args.id]))
        themes = entries.themes_with_id(reading, args.id) or list(dict.fromkeys(gone))
    what = "a turn" if args.turn else "an entry"
    if len(themes) > 1:
        names = ", ".join(safe_line(theme, NAME_CHARS_MAX) for theme in themes)
        raise BadArgument(f"themes {names} have {what} {args.id}; give one of them as --theme")
    if not themes:
        hint = "" if args.turn or not themes_with_turn(reading, args.id) else f", but a turn {args.id}: add --turn"
        raise BadArgument(f"there is no {what[2:].strip()} {args.id}{hint or '; `hermes-pgvector list` shows the ids'}")
    return themes[0]


def _entry(reading: Connection, theme: str, number: int, context: int) -> _Found:
    """An entry, or the one that has replaced it, with the turns around its time in its session."""
    entry = entries.with_id(reading, theme, number)
    known = details(reading, "entries", theme, entry.id) if entry else None
    row = next(iter(listed(reading, "entries", Filter(theme=theme, number=entry.id), 1)), None) if entry else None
    ids = [number, *([entry.id, *known.replaces] if entry and known else [])]
    history = past_entries(reading, HISTORY_MAX, theme=theme, entries=ids)
    if row is None and not history:
        raise BadArgument(f"theme {safe_line(theme, NAME_CHARS_MAX)} has no entry {number}")
    said = neighbours(reading, theme, row.session_id, row.at, context) if row and row.session_id and context else []
    return _Found(theme=theme, row=row, details=known, entry=entry, neighbours=said, history=history)


def _turn(reading: Connection, theme: str, number: int, context: int) -> _Found:
    """A turn with those before and after it in its session."""
    row = next(iter(listed(reading, "turns", Filter(theme=theme, number=number), 1)), None)
    if row is None:
        raise BadArgument(f"theme {safe_line(theme, NAME_CHARS_MAX)} has no turn {number}")
    known = details(reading, "turns", theme, number)
    said = neighbours(reading, theme, row.session_id, row.at, context + 1) if context else []
    place = next((place for place, turn in enumerate(said) if turn.id == number), 0)
    said = said[max(0, place - context) : place + context + 1]
    return _Found(theme=theme, row=row, details=known, entry=None, neighbours=said, history=[])


def _facts(found: _Found, file: str, title: str) -> list[tuple[str, str]]:
    row, known = found.row, found.details
    assert row is not None
    what = f"entry {row.id} of {row.target}" if row.target else f"turn {row.id} of {row.role}"
    session = safe_line(row.session_id, NAME_CHARS_MAX)
    after = safe_line(known.parent_session_id, NAME_CHARS_MAX) if known else ""
    lines = [
        ("Row", f"{what}{labels(row.tags, row.expires_at)}"),
        ("Theme", safe_line(row.theme, NAME_CHARS_MAX)),
        ("Said", local_time(row.at)),
        ("Changed", local_time(known.updated_at) if known and known.updated_at != row.at else ""),
        ("Source", safe_line(row.source, NAME_CHARS_MAX)),
        ("Home", safe_line(row.home, NAME_CHARS_MAX)),
        ("File", file),
        ("Session", f"{session}{f', after {after}' if after else ''}"),
        ("Title", safe_line(title, LINE_CHARS_MAX)),
        ("Search", _searchable(known) if known else ""),
        ("Metadata", safe_line(json.dumps(row.metadata), METADATA_CHARS_MAX) if row.metadata else ""),
    ]
    return [(name, value) for name, value in lines if value]


def _searchable(known: Details) -> str:
    vector = "by meaning" if known.embedded else "not by meaning yet: it has no vector"
    chunks = f" in {counted(known.pieces, 'chunk')}" if known.pieces else ""
    return f"{vector}{chunks}, {'by words' if known.worded else 'not by words yet'}"


def _beside(turn: Neighbour, row: Listed | None) -> dict[str, Cell]:
    this = row is not None and row.role != "" and turn.id == row.id
    text = Text.assemble((f"{turn.role}{' (this turn)' if this else ''}\n", "dim"), safe_line(turn.content, 300))
    return {"Turn": str(turn.id), "When": local_time(turn.at), "Around it": text}


def _past(past: Past) -> dict[str, Cell]:
    text = Text(safe_line(past.content, LINE_CHARS_MAX))
    if past.replaced_by is not None:
        text.append(f"\n→ {safe_line(past.replaced_by, LINE_CHARS_MAX)}", "dim")
    return {"Undo": str(past.id), "When": local_time(past.gone_at), "How": past.how, "Before": text}
