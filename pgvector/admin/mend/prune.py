"""prune: delete turns by age, theme, role and length, and entries when asked, after a plan."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.filesize import decimal as size

from ...errors import BadArgument
from ...settings import Settings
from ...store import pruning
from ...store.connection.database import Connection
from ...store.pruning import Count, Kind, Prunable, Pruning
from ...store.upkeep import count_words
from ...text import times
from ...text.sanitize import safe_line
from ...text.theme_names import hidden_pattern
from ..console import ATTENTION, Cell, Console, counted, local_time, rows_table
from ..limits import COUNT_S_MAX
from .batches import Memory, Task, opened, themes_named

SHOWN_MAX = 50


def prune(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Delete what matches, after a plan. Returns 1 when nothing was agreed to, and ATTENTION when some rows are left.

    Raises BadArgument without any condition, and KeyboardInterrupt after the result is printed.
    """
    console.check_consent(args)
    if not (args.theme or args.before or args.role or args.longer_than):
        raise BadArgument("name what to delete: --theme, --before, --role or --longer-than")
    if args.role and (args.entries or args.entries_only):
        raise BadArgument("entries have no role; leave out --role, or --entries")
    wanted = Prunable(before=times.since(args.before, "--before", zone=None), role=args.role, chars=args.longer_than)
    with opened(home) as memory:
        with console.busy("counting"):
            plan = _matching(memory, args, wanted)
        _show(console, plan)
        total = sum(each.turns + each.entries for each in plan)
        document = {"plan": [asdict(each) for each in plan], "dry_run": args.dry_run}
        if args.theme and not plan:
            console.say("is it the right theme? for their names: hermes-pgvector themes")
        if not total or args.dry_run:
            console.data({**document, "deleted": 0, "left": total, "interrupted": False})
            return 0
        if not console.agreed(args, f"Delete {counted(total, 'row')}?"):
            return 1
        done = memory.run(_tasks(plan, wanted), total, console)
        with console.busy("counting"):
            left = sum(each.turns + each.entries for each in _matching(memory, args, wanted))
            memory.change(lambda connection: _count_words(connection, memory.settings))
    console.data({**document, "deleted": done.rows, "left": left, "interrupted": done.interrupted})
    console.show(f"deleted {counted(done.rows, 'row')}; {counted(left, 'row')} left that match")
    if done.interrupted:
        console.say("interrupted; to delete the rest, run the command again")
        raise KeyboardInterrupt
    console.say("the space is free for new rows; VACUUM FULL by the tables' owner gives it back to the disk")
    if left:
        console.say("rows that are left came or were in use meanwhile; run the command again")
    return ATTENTION if left else 0


def _matching(memory: Memory, args: argparse.Namespace, wanted: Prunable) -> list[Count]:
    def read(connection: Connection) -> list[Count]:
        themes = themes_named(connection, args.theme, memory.settings)
        kinds = {"turns": not args.entries_only, "entries": args.entries or args.entries_only}
        return pruning.count(connection, themes, wanted, **kinds)

    return memory.change(read, COUNT_S_MAX)


def _tasks(plan: Sequence[Count], wanted: Prunable) -> Iterator[Task]:
    for each in plan:
        parts: tuple[tuple[Kind, int], ...] = (("turns", each.turns), ("entries", each.entries))
        for kind, total in parts:
            if total:
                name = f"{kind} of {safe_line(each.theme, 24)}"
                yield Task(name, total, Pruning(kind, each.theme, wanted).batch)


def _count_words(connection: Connection, settings: Settings) -> None:
    """Count the common words of themes that have shrunk: recalls weigh words by how rare they are."""
    while count_words(connection, settings.word_candidates_max, hidden_pattern(settings.bench_themes)):
        pass


def _show(console: Console, plan: Sequence[Count]) -> None:
    if not any(each.turns + each.entries for each in plan):
        console.show("no row matches")
    else:
        console.show(rows_table([_row(each) for each in plan[:SHOWN_MAX]]))
        if len(plan) > SHOWN_MAX:
            console.say(f"and {counted(len(plan) - SHOWN_MAX, 'theme')} more")
    if kept := sum(each.kept for each in plan):
        what = counted(kept, "matching entry stays", "matching entries stay")
        console.say(f"{what}: they are lines of MEMORY.md or USER.md of a home; change them there")


def _row(each: Count) -> dict[str, Cell]:
    return {
        "Turns": each.turns,
        "Entries": each.entries,
        "Size": size(each.bytes),
        "Oldest": local_time(each.first),
        "Newest": local_time(each.latest),
        "Theme": safe_line(each.theme, 40),
    }
