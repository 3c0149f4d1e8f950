"""dedupe: find rows that say the same, show them in groups, and merge the groups that are agreed to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ...mirror.home import Home
from ...store import duplicates
from ...store.connection.database import Connection
from ...store.duplicates import Compared, Kind
from ...text.sanitize import safe_line
from ..console import ATTENTION, Cell, Console, counted, local_time, rows_table
from ..limits import COUNT_S_MAX
from .batches import Memory, opened, themes_named
from .duplicates import Found, Search, sizes

SHOWN_MAX = 50
# Fewer than the answers that a command takes.
QUESTIONS_MAX = 80
TEXT_CHARS_MAX = 300
# Of a group.
ROWS_SHOWN_MAX = 20
ROWS_AT_ONCE = 1000


class Plan:
    """The groups of a search with their rows, as they are shown and printed."""

    def __init__(self, memory: Memory, home: Path, kind: Kind, found: Sequence[Found], limit: int) -> None:
        self._memory, self._kind = memory, kind
        self._own = Home(home).known_id
        self.groups, self.more = found[:limit], max(0, len(found) - limit)

    def rows(self, groups: Sequence[Found]) -> dict[tuple[str, int], Compared]:
        """The rows of these groups that are there, by their themes and ids."""
        ids: dict[str, list[int]] = {}
        for theme, group in groups:
            ids.setdefault(theme, []).extend((group.keep, *group.merge, *group.stay))
        found: dict[tuple[str, int], Compared] = {}
        for theme, numbers in ids.items():
            for start in range(0, len(numbers), ROWS_AT_ONCE):
                some = numbers[start : start + ROWS_AT_ONCE]
                read = self._memory.change(partial(duplicates.shown, kind=self._kind, theme=theme, ids=some))
                found |= {(theme, number): row for number, row in read.items()}
        return found

    def document(self) -> list[dict[str, Any]]:
        """The groups as `--json` prints them."""
        rows, listed = self.rows(self.groups), []
        for theme, group in self.groups:
            sides = {"keep": [group.keep], "merge": group.merge, "stay": group.stay}
            found = {
                side: [rows[theme, number]._asdict() for number in ids if (theme, number) in rows]
                for side, ids in sides.items()
            }
            similarity = round(group.similarity, 3)
            listed.append({"theme": theme, "reworded": group.reworded, "similarity": similarity, **found})
        return listed

    def table(self, each: Found) -> Table | str:
        """A group as people see it."""
        rows, (theme, group) = self.rows([each]), each
        marked = {group.keep: "keep", **dict.fromkeys(group.merge, "merge"), **dict.fromkeys(group.stay, "stay")}
        cells = [self._cells(mark, rows[theme, number]) for number, mark in marked.items() if (theme, number) in rows]
        return rows_table(cells[:ROWS_SHOWN_MAX]) if cells else "the rows of this group are gone"

    def heading(self, each: Found) -> Text:
        """What the rows of a group have in common."""
        same = f"other words, similarity {each.group.similarity:.2f}" if each.group.reworded else "the same words"
        rows = 1 + len(each.group.merge) + len(each.group.stay)
        return Text(f"{safe_line(each.theme, 40)}: {counted(rows, 'row')}, {same}", "bold")

    def _cells(self, mark: str, row: Compared) -> dict[str, Cell]:
        file = f", a file of {'this home' if row.home == self._own else row.home[:8]}" if row.home else ""
        about = f"{local_time(row.updated_at)}, {safe_line(row.part, 40)}, {safe_line(row.source, 40)}{file}\n"
        text = Text.assemble((about, "dim"), safe_line(row.content, TEXT_CHARS_MAX))
        return {"": mark, "ID": str(row.id), "Row": text}


def dedupe(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Merge duplicates after a plan. Returns 1 when nothing was agreed to, and ATTENTION when something is left.

    Raises BadArgument, and KeyboardInterrupt after the result is printed.
    """
    console.check_consent(args)
    with opened(home) as memory:
        search = Search(args.kind, args.similarity)
        with console.busy("counting"):
            themes = memory.change(lambda reading: _themes(reading, memory, args), COUNT_S_MAX)
        if memory.run(search.tasks(themes), sum(rows for _, rows in themes), console).interrupted:
            console.say("interrupted before the end of the comparison; nothing is changed")
            raise KeyboardInterrupt
        plan = Plan(memory, home, args.kind, search.found, args.limit)
        document = {
            "groups": plan.document() if console.as_json else [],
            "more": plan.more, "dry_run": args.dry_run,
        }  # fmt: skip
        _say_plan(console, plan, args)
        if not plan.groups or args.dry_run:
            console.data({**document, "merged": 0, "left": 0, "not_agreed": len(plan.groups), "interrupted": False})
            return 0
        chosen = _chosen(console, plan, args)
        if not (chosen or args.yes):
            console.say("nothing is changed")
            return 1
        tasks = list(search.merging(chosen))
        total = sum(task.total for task in tasks)
        done = memory.run(tasks, total, console)
    left, not_agreed = total - done.rows, len(plan.groups) - len(chosen)
    result = {"merged": done.rows, "left": left, "not_agreed": not_agreed, "interrupted": done.interrupted}
    console.data({**document, **result})
    console.show(f"{'merged' if args.kind == 'entries' else 'deleted'} {counted(done.rows, 'row')}")
    if done.interrupted:
        console.say("interrupted; to merge the rest, run the command again")
        raise KeyboardInterrupt
    _say_next(console, plan, args, left, not_agreed)
    return ATTENTION if left or plan.more or (args.yes and not_agreed) else 0


def _themes(reading: Connection, memory: Memory, args: argparse.Namespace) -> list[tuple[str, int]]:
    return sizes(reading, args.kind, themes_named(reading, args.theme, memory.settings))


def _say_plan(console: Console, plan: Plan, args: argparse.Namespace) -> None:
    """Show the groups that are not shown with a question of their own, and say what they are."""
    same = [each for each in plan.groups if not each.group.reworded]
    if not plan.groups:
        console.show("no rows say the same")
        return
    asked = not (args.yes or args.dry_run)
    for each in (same if asked else plan.groups)[:SHOWN_MAX]:
        console.show(plan.heading(each), plan.table(each), "")
    console.show(f"{counted(len(same), 'group')} of the same words, {len(plan.groups) - len(same):,} of other words")
    if plan.more:
        console.say(f"and {counted(plan.more, 'group')} more, for the next run")
    if any(each.group.stay for each in plan.groups):
        console.say("entries marked `stay` are lines of MEMORY.md or USER.md of a home; change them there")
    if args.kind == "turns":
        console.say("turns are deleted for good: the history keeps entries only")


def _chosen(console: Console, plan: Plan, args: argparse.Namespace) -> list[Found]:
    """The groups that are agreed to: those of the same words together, the others one by one."""
    same = [each for each in plan.groups if not each.group.reworded]
    others = [each for each in plan.groups if each.group.reworded]
    if args.yes:
        return same + (others if args.reworded else [])
    question = f"Merge {counted(len(same), 'group')} of the same words?"
    chosen = same if same and console.confirm(question, default=False) else []
    for number, each in enumerate(others[:QUESTIONS_MAX], 1):
        console.show("", plan.heading(each), plan.table(each))
        what = f"Merge this group ({number} of {len(others):,})?"
        answer = console.ask(f"{what} y: yes, n: no, a: this and all that follow, q: ask no more", "n").lower()[:1]
        if answer == "q":
            break
        if answer == "a":
            return chosen + others[number - 1 :]
        if answer == "y":
            chosen = [*chosen, each]
    return chosen


def _say_next(console: Console, plan: Plan, args: argparse.Namespace, left: int, not_agreed: int) -> None:
    if args.kind == "entries":
        console.say("hermes-pgvector history lists what was merged; hermes-pgvector undo N takes it back")
    if left:
        console.say(f"{counted(left, 'row')} of these groups were in use or have changed; run the command again")
    if not_agreed and args.yes:
        what = f"{counted(not_agreed, 'group')} of other words {'was' if not_agreed == 1 else 'were'} not merged"
        console.say(f"{what}: look at them without --yes, or add --reworded")
    if plan.more:
        console.say(f"{counted(plan.more, 'group')} more; run the command again")
