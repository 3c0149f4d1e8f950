"""history, undo: earlier versions of entries that were replaced, removed or edited, and how to restore one."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from rich.text import Text

from ..errors import BadArgument, Refused
from ..model import now
from ..settings import load
from ..store.connection.database import Connection
from ..store.entries import entry_with
from ..store.history import Past, past_entries, take_back
from ..text import times
from ..text.sanitize import safe_line
from .console import Cell, Console, labels, local_time, rows_table
from .database import connection, theme_named
from .limits import COUNT_S_MAX

TEXT_CHARS_MAX = 300


def history(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print earlier versions of entries, newest first, of one theme or all. Returns 0."""
    if args.since == "":
        raise BadArgument("--since is empty; give a date, a time or an age, or leave it out")
    since = times.since(args.since or "", "--since", zone=None)
    with connection(home, COUNT_S_MAX) as reading:
        theme = theme_named(reading, args.theme, load(home)) if args.theme else ""
        found = past_entries(reading, args.limit, theme=theme, target=args.target, since=since)
    console.data({"history": [asdict(entry) for entry in found]})
    rows = [_cells(entry) for entry in found]
    console.show(rows_table(rows) if rows else "no entry was replaced, removed or edited")
    return 0


def undo(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Restore the entry with this number in the history. Raises Refused when its theme has the same entry now."""
    with connection(home, COUNT_S_MAX) as writing:
        found = past_entries(writing, 1, number=args.id)
        if not found:
            raise BadArgument(f"the history has no entry {args.id}; see: hermes-pgvector history")
        entry = found[0]
        restored, replaced = take_back(writing, entry)
        if restored is None:
            existing = _row(writing, entry, entry.content)
            raise Refused(f"theme {entry.theme} has this entry already, as row {existing} of {entry.target}")
        beside = _row(writing, entry, entry.replaced_by) if entry.replaced_by and replaced is None else None
    console.data({"restored": restored, "beside": beside, "replaced": replaced, "entry": asdict(entry)})
    console.show(f"restored in theme {entry.theme}, {entry.target}, as row {restored}:")
    console.show(safe_line(entry.content, TEXT_CHARS_MAX))
    if replaced is not None:
        console.show(f"in place of: {safe_line(replaced, TEXT_CHARS_MAX)}")
    if beside is not None:
        console.say(f"the entry that replaced it stays, as row {beside}")
    if entry.expires_at is not None and entry.expires_at <= now():
        console.say(f"its expiry, {local_time(entry.expires_at)}, is over: it does not expire any more")
    console.say("agents recall the entry; MEMORY.md and USER.md are unchanged")
    return 0


def _cells(entry: Past) -> dict[str, Cell]:
    when = local_time(entry.gone_at)
    return {"ID": str(entry.id), "When": when, "How": entry.how, "Entry": _described(entry)}


def _row(reading: Connection, entry: Past, content: str) -> int | None:
    found = entry_with(reading, entry.theme, entry.target, content)
    return found.id if found else None


def _described(entry: Past) -> Text:
    session = f", session {safe_line(entry.session_id, 36)}" if entry.session_id else ""
    text = Text.assemble(
        (
            f"{safe_line(entry.theme, 40)}, {entry.target}, of {local_time(entry.updated_at)}{session}"
            f"{labels(entry.tags, entry.expires_at)}\n",
            "dim",
        ),
        safe_line(entry.content, TEXT_CHARS_MAX),
    )
    if entry.replaced_by is not None:
        text.append(f"\n→ {safe_line(entry.replaced_by, TEXT_CHARS_MAX)}", "dim")
    return text
