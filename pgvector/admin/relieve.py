"""relieve: make room in a full MEMORY.md or USER.md; the database keeps what leaves the file."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.text import Text

from ..errors import DatabaseUnavailable
from ..mirror.home import Home
from ..mirror.relief import Relieved
from ..mirror.relief_plan import Plan
from ..model import TARGETS
from ..settings import load
from ..text.sanitize import safe_line
from ..tools.relief import PROPOSALS_MAX, document, done, headline, relief_of
from .console import Cell, Console, counted, rows_table
from .database import running, wait_ready

ENTRY_CHARS_MAX = 160
FLUSH_S_MAX = 10.0
NO_FILES = "there is no MEMORY.md or USER.md that the host uses"


def relieve(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print what may leave the memory files, and with `--yes` do it. Returns 0. A home without them gets no file."""
    settings, files = load(home), Home(home)
    if not any(files.file(target).exists() for target in TARGETS):
        console.data({"dry_run": not args.yes, "files": []} | ({} if args.yes else {"problem": ""}))
        console.show(NO_FILES)
        return 0
    with console.busy("looking"), running(settings, home) as runtime:
        found = relief_of(runtime, above_pct=args.above)
        if found.targets():
            try:
                wait_ready(runtime)
            except DatabaseUnavailable:
                if args.yes:
                    raise
        if args.yes:
            runtime.writer.flush(FLUSH_S_MAX, orphans=True)
            relieved = found.carry_out()
            plans = [each.plan for each in relieved]
            answer = {"dry_run": False, "files": [done(each) for each in relieved]}
        else:
            relieved, plans = [], found.plans()
            answer = {"dry_run": True, "files": [document(plan) for plan in plans], "problem": found.problem}
    console.data(answer)
    for plan in plans:
        _show(console, plan)
    if not plans:
        console.show(NO_FILES)
    elif found.problem:
        console.say(f"hermes-pgvector: the order is by length alone, because {found.problem}")
    _say_next(console, plans, relieved, carried_out=args.yes)
    return 0


def _show(console: Console, plan: Plan) -> None:
    full = f"; it is relieved above {plan.above_pct} %, down to {plan.to_pct} %"
    console.show(headline(plan) if plan.changes else headline(plan) + full)
    if rows := _rows(plan):
        console.show(rows_table(rows))


def _rows(plan: Plan) -> list[dict[str, Cell]]:
    rows = [
        _row("to facts" if move.facts else "to entries", move.freed, f"{move.changed_at:%Y-%m-%d}", move.entry)
        for move in plan.moves
    ]
    rows += [_row("once, not twice", len(entry), "", entry) for entry in plan.repeated]
    rows += [_row("stays", len(entry), "", entry, f"({why})") for entry, why in plan.staying.items()]
    rows += [
        _row("proposed", None, "", one.entry, f"nearly the same as: {one.other}") for one in plan.alike[:PROPOSALS_MAX]
    ]
    rows += [
        _row("proposed", one.shorter, "", one.entry, f"shorter: {one.other}") for one in plan.shorter[:PROPOSALS_MAX]
    ]
    return rows


def _row(what: str, chars: int | None, changed: str, entry: str, remark: str = "") -> dict[str, Cell]:
    text = Text(safe_line(entry, ENTRY_CHARS_MAX))
    if remark:
        text.append(f"\n{safe_line(remark, ENTRY_CHARS_MAX)}", "dim")
    return {"What": what, "Chars": chars, "Changed": changed, "Entry": text}


def _say_next(console: Console, plans: list[Plan], relieved: list[Relieved], *, carried_out: bool) -> None:
    for each in relieved:
        if each.backup:
            moved = counted(len(each.plan.moves), "entry", "entries")
            console.say(f"{moved} left {each.plan.file}, and the memory recalls them; backup: {each.backup}")
    if not carried_out and any(plan.changes for plan in plans):
        console.say("nothing is changed yet; to do it: hermes-pgvector relieve --yes")
    if any(plan.alike or plan.shorter for plan in plans):
        console.say("what is only proposed is yours to do: edit the file, or ask the agent to")
