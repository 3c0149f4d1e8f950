"""themes, sessions: what a memory holds, by theme, and the sessions of one theme."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.filesize import decimal as size

from ...hosts import state_db
from ...mirror.home import Home
from ...settings import load
from ...store import statistics
from ...store.connection.database import Connection
from ...store.listing import Session
from ...store.listing import sessions as sessions_of
from ...store.schema.verification import verify
from ...store.statistics import ThemeSample, ThemeTotals
from ...text.sanitize import safe_line
from ..console import Cell, Console, local_time, rows_table
from ..database import connection, own_theme, theme_named
from ..limits import COUNT_S_MAX

NAME_CHARS_MAX = 128
TITLE_CHARS_MAX = 200
SAMPLE_ROWS = 200
HOMES_ENTRIES = 1000


def themes(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print the largest themes with rows, estimated sizes, times and homes. Returns 0."""
    with console.busy("counting"), connection(home, COUNT_S_MAX) as reading:
        found = statistics.themes(reading, args.limit + 1)
        documents = described(reading, found[: args.limit])
        schema = verify(reading, "")
    own = Home(home).known_id
    console.data(
        {
            "themes": documents,
            "more": len(found) > len(documents),
            "home": own,
            "vectors": {"dimensions": schema.dimensions, "model": schema.embedding_model},
        }
    )
    if not documents:
        console.show("no theme has rows")
        return 0
    rows = [_row(document, own) for document in documents]
    # Most memories have neither.
    spare = [name for name in ("Facts", "No vector") if not any(row[name] for row in rows)]
    console.show(rows_table([{name: cell for name, cell in row.items() if name not in spare} for row in rows]))
    model = schema.embedding_model or "no model yet"
    console.say(
        f"vectors: {schema.dimensions} dimensions, {model}; sizes are estimated from the newest rows of a theme"
    )
    if len(found) > len(documents):
        console.say(f"these are the largest {len(documents)}; for more: --limit")
    return 0


def described(reading: Connection, shown: Sequence[ThemeTotals]) -> list[dict[str, Any]]:
    """These themes with estimated sizes and homes, as `--json` prints them."""
    samples = statistics.sample(reading, [theme.theme for theme in shown], SAMPLE_ROWS, HOMES_ENTRIES)
    return [_document(theme, samples[theme.theme]) for theme in shown]


def _document(theme: ThemeTotals, sample: ThemeSample) -> dict[str, Any]:
    of_turns, of_facts = theme.turns * sample.turn_bytes, theme.facts * sample.fact_bytes
    estimate = round(theme.entries * sample.entry_bytes + of_turns + of_facts)
    return {**asdict(theme), "bytes_estimated": estimate, "homes": list(sample.homes)}


def _row(theme: dict[str, Any], own: str) -> dict[str, Cell]:
    homes = theme["homes"]
    this = " (this)" if homes == [own] else ""
    return {
        "Entries": theme["entries"],
        "Turns": theme["turns"],
        "Facts": theme["facts"],
        "No vector": theme["without_vector"],
        "Size": size(theme["bytes_estimated"]),
        "First": local_time(theme["first"])[:10],
        "Last": local_time(theme["latest"])[:10],
        "Homes": f"{len(homes)}{this}" if homes else "",
        "Theme": safe_line(theme["theme"], NAME_CHARS_MAX),
    }


def sessions(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print the sessions of a theme, the newest first, with the titles that this home's host has. Returns 0."""
    with console.busy("counting"), connection(home, COUNT_S_MAX) as reading:
        settings = load(home)
        theme = theme_named(reading, args.theme or own_theme(home, settings), settings)
        found = sessions_of(reading, theme, args.limit + 1, args.offset)
    shown = found[: args.limit]
    titles = state_db.titles(home, [session.session_id for session in shown])
    more = len(found) > len(shown)
    documents = [{**asdict(session), "title": titles.get(session.session_id, "")} for session in shown]
    console.data({"theme": theme, "sessions": documents, "offset": args.offset, "more": more})
    if shown:
        console.show(rows_table([_session(session, titles.get(session.session_id, "")) for session in shown]))
    else:
        console.show(f"theme {safe_line(theme, NAME_CHARS_MAX)} has no {'more ' if args.offset else ''}sessions")
    if more:
        console.say(f"for more: --offset {args.offset + len(shown)}")
    return 0


def _session(session: Session, title: str) -> dict[str, Cell]:
    name = safe_line(session.session_id, NAME_CHARS_MAX) or "(none)"
    return {
        "Turns": session.turns,
        "First": local_time(session.first),
        "Last": local_time(session.latest),
        "Session": f"{name}\n{safe_line(title, TITLE_CHARS_MAX)}" if title else name,
    }
