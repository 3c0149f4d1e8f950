"""doctor: run all checks and print each problem with its remedy."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from rich.table import Table
from rich.text import Text

from ...errors import SettingsError
from ...hosts.config import person_key
from ...hosts.environment import typed
from ...mirror.home import Home
from ...session.person_key import PersonKey
from ...settings import load
from .. import standby
from ..check import Check, Verdict
from ..console import Console, counted
from ..overview import overview
from . import database, files, installation, server, sessions, themes

_MARKS: dict[Verdict, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "problem": ("✗", "red"),
}


def doctor(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print the result of every check. Returns 1 when there is a problem; a warning is none."""
    with console.busy("checking"):
        found = checks(home, with_canary=args.canary)
    problems = sum(check.verdict == "problem" for check in found)
    warnings = sum(check.verdict == "warning" for check in found)
    console.data({"ok": not problems, "checks": [asdict(check) for check in found]})
    console.show(_table(found, home))
    if problems or warnings:
        console.say(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}")
    return 1 if problems else 0


def _table(found: list[Check], home: Path) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column()
    table.add_column(overflow="fold")
    for check in found:
        mark, colour = _MARKS[check.verdict]
        table.add_row(Text(mark, style=colour), Text(f"{check.name}: {check.found}"))
        if check.remedy:
            table.add_row("", Text.assemble(("→ ", colour), typed(check.remedy, home)))
    return table


def checks(home: Path, *, with_canary: bool) -> list[Check]:
    """The result of every check."""
    found = [*installation.packages(), *installation.host(home)]
    try:
        settings = load(home)
        here = Home(home, settings)
        seen = overview(settings, here.path, themes_max=0)
    except SettingsError as error:
        return [*found, Check("settings", "problem", str(error), "fix it; the other checks need valid settings")]
    found += [files.names_of_settings(here.path, settings), themes.readable(settings, here.path)]
    found += files.exported_otherwise(here.path)
    found += files.local_files(here, settings)
    found += database.database(seen, here.state)
    if seen.schema:
        found += server.server(settings, here.path, seen.schema)
    found += sessions.past(settings, here.path, seen)
    found += standby.check(seen.standby)
    found += database.person_key(PersonKey(here.state, person_key(here.path)), seen)
    found += database.embedder(settings, seen)
    found += database.reranker(settings)
    if with_canary and seen.schema:
        found += server.canary(settings, here.path)
    return found
