"""remap --personal: themes that are named like persons get the names that `hash_personal_keys` makes."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from ...errors import Refused
from ...session.chats import theme_of_person
from ...store import person_links, pruning, renames
from ...store.connection.database import Connection
from ...store.person_links import Holding
from ...text.personal_keys import kind
from ...text.sanitize import safe_line
from ...text.theme_names import reserved
from ..console import Console, counted, rows_table
from ..database import running, wait_ready
from ..limits import COUNT_S_MAX
from .batches import Memory, Task, opened

NAME_CHARS_MAX = 60
LATE = "their old names stay in memory_renames, so that late events find the new ones; to forget one: remap --release"


def hash_names(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Rename them after a plan, the only output with their names. Returns 1 when nothing was agreed to.

    Themes that are linked to a person are left out. Raises Refused while the setting is off, and KeyboardInterrupt
    after the result is printed.
    """
    with opened(home) as memory:
        if not memory.settings.hash_personal_keys:
            remedy = "hermes-pgvector settings set hash_personal_keys true, in this home and in all others"
            raise Refused(f"hash_personal_keys is off, so later sessions would make these names again; first: {remedy}")
        with console.busy("counting"):
            plan = memory.change(_named_like_persons, COUNT_S_MAX)
        ways = _new_names(memory, home, plan)
        document = {
            "themes": [{"kind": kind(each.theme), "new": ways[each.theme]} for each in plan], "dry_run": args.dry_run,
        }  # fmt: skip
        console.show(
            rows_table([_row(each, ways[each.theme]) for each in plan]) if plan else "no theme is named like a person"
        )
        if args.dry_run or not plan:
            console.data({**document, "moved": 0, "interrupted": False})
            return 0
        if not console.agreed(args, f"Rename {counted(len(plan), 'theme')}?"):
            return 1
        moved = sum(memory.change(partial(renames.rename, old=old, new=new)) for old, new in ways.items())
        tasks = [_task(each, ways[each.theme]) for each in plan]
        done = memory.run(tasks, sum(task.total for task in tasks), console)
        moved += done.rows
    console.data({**document, "moved": moved, "interrupted": done.interrupted})
    console.show(f"moved {counted(moved, 'row')} of {counted(len(plan), 'theme')}")
    if done.interrupted:
        console.say("interrupted; the agents move the rest within an hour or two, or run the command again")
        raise KeyboardInterrupt
    console.say(LATE)
    return 0


def _named_like_persons(connection: Connection) -> list[Holding]:
    names = [theme for theme in pruning.themes(connection) if not reserved(theme) and kind(theme)]
    linked = person_links.of_themes(connection, names)
    return [person_links.held(connection, name) for name in names if name not in linked]


def _new_names(memory: Memory, home: Path, plan: list[Holding]) -> dict[str, str]:
    """The new names by the old ones. Waits until the key of persons is that of the database."""
    with running(memory.settings, home) as runtime:
        wait_ready(runtime)
        name = runtime.context.person_key.name
        return {each.theme: name(partial(theme_of_person, each.theme)) for each in plan}


def _task(held: Holding, new: str) -> Task:
    return Task("rows", held.rows, lambda connection, rows: renames.move(connection, held.theme, new, rows))


def _row(held: Holding, new: str) -> dict[str, str | int]:
    return {
        "Entries": held.entries, "Turns": held.turns, "Facts": held.facts, "New": new,
        "Old": safe_line(held.theme, NAME_CHARS_MAX),
    }  # fmt: skip
