"""tune: a separate graph index for each theme that is too large for exact search."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.filesize import decimal as size

from ..settings import load
from ..store import theme_index
from ..store.schema import verification
from ..store.schema.preflight import ADMINISTRATOR, admin_connection, check_direct
from ..store.theme_index import ThemeIndex
from ..text.sanitize import safe_line
from .console import Cell, Console, counted, rows_table
from .database import administrators_dsn

THEME_CHARS_MAX = 40
_ACTIVITIES = {"build": "building", "rebuild": "rebuilding", "drop": "dropping"}


def tune(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print the proposed indexes; with `--apply` build and drop them one by one, while agents run. Returns 0."""
    settings = load(home)
    target, embedded = administrators_dsn(settings, home, console, args.dsn)
    least = args.rows_min or settings.exact_rows_max + 1
    with admin_connection(target) as connection:
        verification.verify(connection, "hermes-pgvector server start" if embedded else "")
        if args.apply:
            check_direct(connection, target)
            theme_index.lock(connection)
        with console.busy("counting the rows of the themes"):
            found = theme_index.plan(connection, rows_min=least, indexes_max=args.indexes_max)
        due = [index for index in found if index.step != "keep"]
        for number, index in enumerate(due if args.apply else (), 1):
            with console.busy(f"{_ACTIVITIES[index.step]} {index.name} ({number} of {len(due)})"):
                theme_index.apply(connection, index)
            console.say(f"{index.step}: {index.name}")
    console.data({"rows_min": least, "applied": args.apply, "indexes": [asdict(index) for index in found]})
    _show(console, found, least)
    if due and not args.apply:
        same = f"--rows-min {least} --indexes-max {args.indexes_max}" + (f" --dsn {ADMINISTRATOR}" if args.dsn else "")
        console.say(f"{counted(len(due), 'change')} proposed; to apply: hermes-pgvector tune --apply {same}")
    return 0


def _show(console: Console, found: Sequence[ThemeIndex], least: int) -> None:
    if not found:
        console.show(f"nothing to do: no theme with {least:,} rows or more needs a separate index")
        return
    console.show(rows_table([_row(index) for index in found]))


def _row(index: ThemeIndex) -> dict[str, Cell]:
    theme = safe_line(index.theme, THEME_CHARS_MAX)
    return {"Step": index.step, "Rows": index.rows, "Size": size(index.bytes), "Kind": index.kind, "Theme": theme}
