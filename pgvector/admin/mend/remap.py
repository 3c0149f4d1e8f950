"""remap: rename a theme or join it to another; later events of the old name are stored under the new one."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial
from pathlib import Path

from ...errors import BadArgument, Refused
from ...store import person_links, renames
from ...store.connection.database import Connection
from ...store.person_links import Holding
from ...text.sanitize import safe_line
from ...text.theme_names import normalise, reserved
from ..console import Cell, Console, counted, local_time, rows_table
from ..limits import COUNT_S_MAX
from .batches import Memory, Task, opened
from .personal import hash_names

NAME_CHARS_MAX = 60


def remap(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Rename a theme, release an old name, or list the old names. Returns 1 when nothing was agreed to.

    Raises BadArgument and Refused, and KeyboardInterrupt after the result is printed.
    """
    if args.personal:
        if args.old or args.release:
            raise BadArgument("--personal finds the themes by itself; leave the names out")
        console.check_consent(args)
        return hash_names(home, console, args)
    if args.release:
        if args.old:
            raise BadArgument("--release takes one old name, and no other names")
        return _release(home, console, normalise(args.release))
    if not (args.old or args.new):
        return _list(home, console)
    if not (args.old.strip() and args.new.strip()):
        raise BadArgument("name the theme and its new name, neither of them empty: hermes-pgvector remap OLD NEW")
    console.check_consent(args)
    return _rename(home, console, args, normalise(args.old), normalise(args.new))


def _rename(home: Path, console: Console, args: argparse.Namespace, old: str, new: str) -> int:
    with opened(home) as memory:
        with console.busy("counting"):
            held = memory.change(partial(_checked, old=old, new=new), COUNT_S_MAX)
        _show(console, held)
        total = held[0].rows
        document = {"old": old, "new": new, "plan": [asdict(each) for each in held], "dry_run": args.dry_run}
        if args.dry_run:
            console.data({**document, "moved": 0, "interrupted": False})
            return 0
        what = "Join it to" if held[1].rows else "Rename it to"
        if not console.agreed(args, f"{what} {safe_line(new, NAME_CHARS_MAX)}?"):
            return 1
        moved = memory.change(partial(renames.rename, old=old, new=new))
        task = Task("rows", total - moved, lambda connection, rows: renames.move(connection, old, new, rows))
        done = memory.run([task], total - moved, console)
        moved += done.rows
    console.data({**document, "moved": moved, "interrupted": done.interrupted})
    console.show(f"moved {counted(moved, 'row')}; events of {safe_line(old, NAME_CHARS_MAX)} are stored under {new}")
    if done.interrupted:
        console.say("interrupted; the agents move the rest within an hour or two, or run the command again")
        raise KeyboardInterrupt
    _say_next(console, memory, old)
    return 0


def _checked(connection: Connection, old: str, new: str) -> tuple[Holding, Holding]:
    """What the themes hold. Raises BadArgument or Refused when one cannot become the other."""
    if old == new:
        raise BadArgument(f"{old} has this name already (names are in lower case, with - for spaces)")
    if reserved(old) != reserved(new):
        raise Refused("a theme of a person or room is read by nobody else; it cannot be joined with another kind")
    for theme in (old, new):
        persons = person_links.listed(connection, 1, theme)
        if persons or person_links.of_themes(connection, [theme]):
            raise Refused(f"{theme} is linked to a person; see: hermes-pgvector person list")
    for known in renames.listed(connection, new):
        if known.old == new and known.new != old:
            raise Refused(f"{new} is an old name of {known.new}; use that, or: hermes-pgvector remap --release {new}")
    return person_links.held(connection, old), person_links.held(connection, new)


def _release(home: Path, console: Console, old: str) -> int:
    with opened(home) as memory:
        new = memory.change(partial(renames.release, old=old))
    if new is None:
        raise BadArgument(f"{old} is no old name; see: hermes-pgvector remap")
    console.data({"released": old, "new": new})
    console.show(f"{safe_line(old, NAME_CHARS_MAX)} is a theme of its own again; the rows stay under {new}")
    return 0


def _list(home: Path, console: Console) -> int:
    with opened(home) as memory:
        found = memory.change(renames.listed, COUNT_S_MAX)
    console.data({"renames": [asdict(each) for each in found]})
    rows: list[dict[str, Cell]] = [
        {
            "Since": local_time(each.renamed_at),
            "Moved": "no" if each.unmoved else "yes",
            "Old": safe_line(each.old, NAME_CHARS_MAX),
            "New": safe_line(each.new, NAME_CHARS_MAX),
        }
        for each in found
    ]
    console.show(rows_table(rows) if rows else "no theme was renamed")
    return 0


def _show(console: Console, held: tuple[Holding, Holding]) -> None:
    rows: list[dict[str, Cell]] = [
        {
            "": name,
            "Entries": each.entries,
            "Turns": each.turns,
            "Facts": each.facts,
            "Newest": local_time(each.at),
            "Theme": safe_line(each.theme, NAME_CHARS_MAX),
        }
        for name, each in zip(("old", "new"), held, strict=True)
    ]
    console.show(rows_table(rows))
    if not held[0].rows:
        console.say(f"{safe_line(held[0].theme, NAME_CHARS_MAX)} has no rows: is the name right?")


def _say_next(console: Console, memory: Memory, old: str) -> None:
    console.say(f"running agents read the new theme within {memory.settings.heal_interval_s:g} s")
    named = [
        key
        for key in ("allowed_themes", "theme_aliases", "also_recall", "also_write", "cross_theme_recall")
        if repr(old) in str(getattr(memory.settings, key))
    ]
    if named:
        console.say(f"settings of this home name the old theme: {', '.join(named)}")
