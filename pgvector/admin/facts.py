"""facts: show, list, search, write, export and purge the facts of a theme, as an agent does by its tools."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..facts.block import line
from ..facts.notation import Notation, scope_label
from ..model import Caller, now
from ..runtime import Runtime
from ..settings import load
from ..store.diagnosis import waiting_briefly
from ..store.facts import Fact, Status, listed
from ..store.person_links import person_of
from ..text.sanitize import safe_line
from ..tools import facts as tools
from .console import ATTENTION, Cell, Console, counted, facts_table, local_time, rows_table
from .database import connection, in_full, permitted, ready

PAGE = 1000
PLAN_MAX = 20
FACTS_MAX = 1_000_000
STATUSES: dict[str, tuple[Status, ...]] = {
    "active": ("active",),
    "cold": ("cold",),
    "current": ("active", "cold"),
    "superseded": ("superseded", "archived"),
    "all": ("active", "cold", "superseded", "archived"),
}


def status(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print the block that agents get, and its figures. Returns 0."""
    with _ready(home, console, args) as (runtime, caller):
        answer = tools.status(runtime, {}, caller)
    console.data(answer)
    console.show(answer["block"], "")
    gauge = answer["gauge"]
    console.show(
        facts_table(
            [
                ("Theme", answer["theme"]),
                ("Hot facts", str(answer["hot_facts"])),
                ("Open scopes", ", ".join(answer["open_scopes"]) or "none"),
                ("Active facts", f"{gauge['chars']:,} of {gauge['chars_max']:,} characters ({gauge['percent']} %)"),
                *([("Pressure", answer["pressure"])] if "pressure" in answer else []),
            ]
        )
    )
    return 0


def show_all(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print facts in a table, the newest first. Returns 0."""
    with console.busy("looking"):
        found = list(_facts(home, args, args.limit, STATUSES[args.status]))
    console.data({"facts": [asdict(fact) for fact in found]})
    console.show(rows_table([_cells(fact) for fact in found]) if found else "no fact was found")
    return 0


def export(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print facts in their notation, one a line. Returns 0."""
    with console.busy("looking"):
        found = list(_facts(home, args, FACTS_MAX, STATUSES[args.status]))
    console.data({"facts": [_notation(fact) for fact in found]})
    for fact in found:
        console.show(_notation(fact))
    return 0


def search(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Find facts by words and by meaning. Returns 0, or 3 when the search was degraded.

    Raises BadArgument and DatabaseUnavailable.
    """
    with _ready(home, console, args) as (runtime, caller), console.busy("searching"):
        wanted = {"query": args.query, "scope": args.scope, "limit": args.limit}
        answer = tools.search(runtime, wanted, caller)
        answer["degraded"] = [in_full(runtime, reason) for reason in answer["degraded"]]
    console.data(answer)
    rows: list[dict[str, Cell]] = [
        {
            "Score": f"{fact['score']:.2f}", "Id": fact["id"], "Status": fact["status"], "Scope": fact.get("scope", ""),
            "Fact": fact["fact"],
        }
        for fact in answer["facts"]
    ]  # fmt: skip
    console.show(rows_table(rows) if rows else "no fact was found")
    for reason in answer["degraded"]:
        console.say(f"degraded: {reason}")
    return ATTENTION if answer["degraded"] else 0


def write(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Write a fact. Returns 0. Raises BadArgument, which shows the right notation, and DatabaseUnavailable."""
    with _ready(home, console, args) as (runtime, caller):
        answer = tools.write(runtime, {"content": args.content, "scope": args.scope}, caller)
        problem = runtime.writer.health.problem
    console.data(answer)
    number = f" {answer['id']}" if "id" in answer else ""
    console.show(f"{answer['status']}: fact{number} of theme {answer['theme']}: {answer['fact']}")
    for old in answer.get("superseded", []):
        console.show(f"in place of fact {old['id']}: {old['fact']}")
    if "note" in answer:
        console.say(f"it is in the outbox, and stored later: {problem}" if problem else answer["note"])
    return 0


def purge(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Delete superseded and archived facts, after showing them and a question. Returns 1 when nothing was agreed to."""
    console.check_consent(args, "add --yes, after a look at the plan without it")
    wanted: dict[str, Any] = {"scope": args.scope, "older_than_days": args.older_than_days}
    with _ready(home, console, args) as (runtime, caller):
        found = _purgeable(home, args)
        if not found:
            console.data({"theme": caller.theme, "purged": 0})
            console.show("no superseded or archived fact was found")
            return 0
        console.show(rows_table([_cells(fact) for fact in found[:PLAN_MAX]]))
        if len(found) > PLAN_MAX:
            console.say(f"and {counted(len(found) - PLAN_MAX, 'older fact')} more")
        if not console.agreed(args, f"Delete {counted(len(found), 'fact')} for good?"):
            return 1
        answer = tools.purge(runtime, wanted, caller)
    console.data(answer)
    if "purged" in answer:
        # None when counting them before took too long.
        number = "facts" if answer["purged"] is None else counted(answer["purged"], "fact")
        console.show(f"{number} of theme {answer['theme']} deleted")
        if "left" in answer:
            console.say(f"{counted(answer['left'], 'fact')} left; run the command again")
    else:
        console.show(f"{answer['status']}: {answer['note']}")
    return 0


def _purgeable(home: Path, args: argparse.Namespace) -> list[Fact]:
    """What `purge` would delete, the newest first."""
    days = args.older_than_days or 0
    latest = now() - timedelta(days=days)
    return [
        fact
        for fact in _facts(home, args, FACTS_MAX, STATUSES["superseded"])
        if fact.changed_at <= latest and (not days or fact.used_at is None or fact.used_at <= latest)
    ]


@contextmanager
def _ready(home: Path, console: Console, args: argparse.Namespace) -> Iterator[tuple[Runtime, Caller]]:
    """The runtime of a home whose database answers, and on whose behalf a tool is called."""
    settings = load(home)
    theme = permitted(args.theme, home, settings)
    with ready(settings, home, console) as runtime:
        yield runtime, Caller(theme=theme, off_record=settings.off_record)


def _facts(home: Path, args: argparse.Namespace, limit: int, statuses: tuple[Status, ...]) -> Iterator[Fact]:
    """The facts that the arguments ask for, the newest first, read page by page."""
    scope, before = scope_label(args.scope, "--scope") or None, None
    with connection(home) as reading:
        theme = person_of(reading, permitted(args.theme, home, load(home)))
        while limit > 0:
            with waiting_briefly(reading):
                page = listed(reading, theme, scope, statuses, min(limit, PAGE), before)
            yield from page
            if len(page) < min(limit, PAGE):
                return
            limit, before = limit - len(page), page[-1].id


def _cells(fact: Fact) -> dict[str, Cell]:
    return {
        "Id": str(fact.id), "Written": local_time(fact.written_at), "Status": fact.status,
        "Scope": safe_line(fact.scope, 40), "Fact": _notation(fact),
    }  # fmt: skip


def _notation(fact: Fact) -> str:
    return line(Notation(fact.kind, fact.target, fact.content))
