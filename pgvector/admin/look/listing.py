"""list: entries and turns by filters, the newest first, page by page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.text import Text

from ...errors import BadArgument
from ...settings import load
from ...store.connection.database import Connection
from ...store.listing import ID_MAX, ID_MIN, Filter, Listed, listed
from ...store.queries import Kind
from ...text import times
from ...text.cleaning import clean
from ...text.sanitize import safe_line
from ...text.tags import normalised
from ..console import Cell, Console, labels, local_time, rows_table
from ..database import connection, theme_named
from ..limits import COUNT_S_MAX

TEXT_CHARS_MAX = 200
# The kinds of rows with their names in the output, in the order in which rows of the same time are listed.
KINDS: dict[Kind, str] = {"entries": "entry", "turns": "turn"}


def show_all(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print a page of the rows that match, the newest first, and the place where the next page begins. Returns 0."""
    since, until = times.since(args.since, "--since", zone=None), times.until(args.until, "--until", zone=None)
    times.check_order(since, until, "--until")
    wanted = Filter(
        session=clean(args.session), role=args.role, target=args.target, source=clean(args.source),
        tags=normalised(args.tag, "--tag"), text=clean(args.text), since=since, until=until,
    )  # fmt: skip
    with console.busy("looking"), connection(home, COUNT_S_MAX) as reading:
        if args.theme:
            wanted = replace(wanted, theme=theme_named(reading, args.theme, load(home)))
        shown, after = page(reading, _kinds(args), wanted, args.limit, args.after)
    console.data({"rows": [document(row) for row in shown], "after": after})
    console.show(rows_table([_cells(row) for row in shown]) if shown else "no row matches")
    if args.theme and not shown:
        console.say(f"is {safe_line(wanted.theme, 128)} the right theme? for their names: hermes-pgvector themes")
    if after:
        console.say(f"for the next page add: --after {after}")
    return 0


def page(
    reading: Connection, kinds: Sequence[Kind], wanted: Filter, limit: int, after: str = ""
) -> tuple[list[Listed], str | None]:
    """The newest `limit` rows that match, after the place that the page before has returned, and the next place.

    Raises BadArgument when `after` is no such place.
    """
    place = _place(after) if after else None
    pages = [
        listed(reading, kind, wanted, limit + 1, before=before, below=below)
        for kind, before, below in _starts(kinds, place)
    ]
    order = list(KINDS)
    rows = sorted((row for page in pages for row in page), key=lambda row: (order.index(row.kind), -row.id))
    rows.sort(key=lambda row: row.at, reverse=True)
    shown = rows[:limit]
    return shown, _name(shown[-1]) if len(rows) > len(shown) else None


def document(row: Listed) -> dict[str, Any]:
    """A row as `--json` prints it."""
    return {**asdict(row), "kind": KINDS[row.kind]}


def described(row: Listed) -> str:
    """Where a row is from, as one line."""
    session = f", session {safe_line(row.session_id, 128)}" if row.session_id else ""
    what = row.target or row.role
    return f"{safe_line(row.theme, 128)}, {what}, {safe_line(row.source, 40)}{session}" + labels(
        row.tags, row.expires_at
    )


def _kinds(args: argparse.Namespace) -> Sequence[Kind]:
    if args.target or args.tag or args.kind == "memory":
        return ("entries",)
    return ("turns",) if args.role or args.kind == "turns" else tuple(KINDS)


def _starts(kinds: Sequence[Kind], place: tuple[datetime, Kind, int] | None) -> list[tuple[Kind, datetime | None, int]]:
    """Of each kind: the time and the id that its rows on this page are before."""
    if place is None:
        return [(kind, None, 0) for kind in kinds]
    at, last, number = place
    order = list(KINDS)

    def before(kind: Kind) -> int:
        if kind == last:
            return number
        # Of the same time, the kinds after that of the last row are still to come.
        return ID_MAX if order.index(kind) > order.index(last) else ID_MIN

    return [(kind, at, before(kind)) for kind in kinds]


def _name(row: Listed) -> str:
    return f"{row.at.isoformat()}/{KINDS[row.kind]}/{row.id}"


def _place(text: str) -> tuple[datetime, Kind, int]:
    """The last row of the page before. Raises BadArgument."""
    names = {name: kind for kind, name in KINDS.items()}
    try:
        at, name, number = text.split("/")
        place = times.utc(datetime.fromisoformat(at)), names[name], int(number)
        if not ID_MIN <= place[2] <= ID_MAX:
            raise ValueError
    except (ValueError, KeyError, OverflowError):
        raise BadArgument(f"--after is {text[:60]!r}; give the place that the page before has printed") from None
    return place


def _cells(row: Listed) -> dict[str, Cell]:
    head = f"{local_time(row.at)}, {described(row)}\n"
    text = Text.assemble((head, "dim"), safe_line(row.content, TEXT_CHARS_MAX))
    return {"ID": f"{KINDS[row.kind]} {row.id}", "Row": text}
