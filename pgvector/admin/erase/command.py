"""The `erase` command: chooses rows, shows them, and deletes them for good, in batches that can be interrupted.

First everything is marked, so that nothing that is deleted later can come back. A command that was killed is run again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.filesize import decimal as size

from ...errors import BadArgument, DatabaseUnavailable, PgvectorError
from ...runtime import Runtime
from ...settings import Settings, load
from ...store import renames
from ...store.connection.database import Connection, Database
from ...store.erasure import marks, selection, traces
from ...store.erasure.selection import Group, Run, Selection
from ...store.person_links import held, themes_of
from ...store.queries import Kind
from ...store.schema.preflight import ADMINISTRATOR, admin_connection
from ...store.schema.verification import verify
from ...text.cleaning import clean
from ...text.sanitize import safe_line
from ..accounts import asked
from ..console import Cell, Console, counted, local_time, rows_table
from ..database import administrators_database, administrators_dsn, connection, ready, theme_named
from ..limits import COUNT_S_MAX
from . import receipt
from .home_files import HomeFiles
from .receipt import NAMES, Holder

TEXT_CHARS_MIN = 3
SHOWN_ROWS, SHOWN_CHARS = 5, 100
LISTED_MAX, HOMES_MAX = 1000, 100
STORE_S = 20.0
# How long to rest after a batch, as a multiple of its time.
REST, REST_S_MAX = 2.0, 1.0
# A page of rows with a text may have to be looked for in all rows.
STATEMENT_S, TRIES = 120.0, 5


def erase(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Erase what the arguments choose, after a plan. Returns 0, 1 when nothing was done, 3 when attention is needed.

    Raises BadArgument, and what the database and the files of the home raise.
    """
    if args.list:
        return _show_erased(home, console)
    if args.vacuum and not _names_rows(args):
        return _clear_server_alone(home, console, args)
    _check(args)
    console.check_consent(args, "add --yes, after a look at the plan without it")
    # What this process stores of others may have to be erased, and is not kept for a failover.
    settings = load(home).model_copy(update={"outbox_keep_s": 0})
    with (
        ready(settings, home, console) as runtime,
        administrators_database(settings, home, console, args.dsn) as deleting,
    ):
        with console.busy("storing what waits in this home"):
            runtime.writer.flush(STORE_S, orphans=True)
        # The owner sees what row security hides from the agents of this home.
        with deleting.connection() as reading:
            with runtime.database.connection() as checked:
                selection.check_role(checked, reading)
            chosen = _chosen(runtime, reading, home, console, args)
            with console.busy("looking for rows"):
                groups = selection.count(reading, chosen)
                homes = selection.homes(reading, chosen, HOMES_MAX)
            if chosen.session and chosen.themes is None:
                named = (theme for group in groups for theme in themes_of(reading, group.theme))
                chosen = replace(chosen, themes=tuple(sorted(set(named))))
            _show_plan(console, reading, chosen, groups)
            if not console.agreed(args, "Erase this for good?"):
                return 1
            files, run = HomeFiles(runtime, reading, chosen), _in_transactions(deleting)
            removed = _erase(console, run, chosen, groups, files, links=args.person or _is_person(chosen))
            of_server = _clear_server(home, console, args, settings)
            runtime.writer.flush(STORE_S, orphans=True)
            holders = [*of_server, *files.holders(), *receipt.of_homes(homes, runtime.home.known_id)]
    plan = [asdict(group) for group in groups]
    return receipt.show(console, {"themes": chosen.themes, "plan": plan}, removed, holders)


def _check(args: argparse.Namespace) -> None:
    """Raises BadArgument for what can be refused before the database is asked."""
    if not _names_rows(args):
        raise BadArgument("name what to erase: an ID, --text, --session, --theme or --person")
    if (args.turn or args.fact) and args.id is None:
        raise BadArgument("--turn and --fact say what the ID is of; add the ID")
    if args.person and args.theme:
        raise BadArgument("--person finds the themes by itself; leave --theme out")
    if args.text not in ("", "-"):
        _check_text(args.text)


def _check_text(text: str) -> None:
    if len(text) < TEXT_CHARS_MIN:
        raise BadArgument(f"the text has {counted(len(text), 'character')}; give {TEXT_CHARS_MIN} or more")


def _chosen(runtime: Runtime, reading: Connection, home: Path, console: Console, args: argparse.Namespace) -> Selection:
    """What the arguments choose. Raises BadArgument."""
    themes: tuple[str, ...] | None = None
    if args.person:
        named = asked(runtime, home, console, args.profile, partial(_is_known, reading))
        themes = tuple(dict.fromkeys(theme for account in named for theme in themes_of(reading, account)))
    elif args.theme:
        themes = themes_of(reading, theme_named(reading, args.theme, runtime.settings))
    if args.id is not None:
        kind: Kind = "turns" if args.turn else "facts" if args.fact else "entries"
        return Selection(themes=themes, kind=kind, ids=selection.versions(reading, kind, args.id, themes))
    text = sys.stdin.read().replace("\r\n", "\n").strip() if args.text == "-" else args.text
    if clean(text) != text or clean(args.session) != args.session:
        raise BadArgument("the text or the session has a NUL or half a character, which no row has")
    if args.text:
        _check_text(text)
    return Selection(themes=themes, session=args.session, text=text)


def _is_known(connection: Connection, theme: str) -> bool:
    """Whether the database has rows of a theme, or another name of it. Marks of others would only tell the name."""
    return bool(held(connection, theme).rows or renames.listed(connection, theme, 1))


def _names_rows(args: argparse.Namespace) -> bool:
    return bool(args.id is not None or args.text or args.session or args.theme or args.person)


def _is_person(chosen: Selection) -> bool:
    """Whether all themes of a person are erased: then their links go, too."""
    return chosen.whole and chosen.themes is not None and len(chosen.themes) > 1


def _show_plan(console: Console, reading: Connection, chosen: Selection, groups: Sequence[Group]) -> None:
    rows: list[dict[str, Cell]] = [
        {
            "What": NAMES[group.kind][1], "Rows": group.rows, "First": local_time(group.first),
            "Last": local_time(group.latest), "Theme": safe_line(group.theme, SHOWN_CHARS),
        }
        for group in groups
    ]  # fmt: skip
    if chosen.themes:
        console.say(f"themes: {', '.join(safe_line(theme, SHOWN_CHARS) for theme in chosen.themes)}")
    if not rows:
        console.say("no rows are found; what this home holds of them is deleted all the same")
        return
    console.show(rows_table(rows))
    if not chosen.whole:
        for row in selection.sample(reading, chosen, SHOWN_ROWS):
            console.show(f"  {NAMES[row.kind][0]} {row.id}: {safe_line(row.text, SHOWN_CHARS)}")
    console.say("they cannot be brought back, and events of any home that were accepted before are dropped")


def _erase(
    console: Console, run: Run, chosen: Selection, groups: Sequence[Group], files: HomeFiles, *, links: bool
) -> Counter[str]:
    """Mark, and then delete: in the home first, because the rows tell what to look for when this is run again."""
    removed = Counter[str]()
    total = sum(group.rows for group in groups)
    try:
        with console.progress() as bar:
            marking = bar.add_task("marking", total=None)
            chosen = run(partial(selection.begin, selection=chosen))
            for _ in selection.mark(run, chosen):
                bar.advance(marking, selection.BATCH_ROWS)
            bar.remove_task(marking)
            removed += files.clear()
            deleting = bar.add_task("deleting", total=total)
            for deleted in selection.delete(run, chosen):
                removed += deleted
                bar.advance(deleting, sum(deleted[kind] for kind in chosen.kinds))
        removed += run(partial(selection.settle, selection=chosen, links=links))
    except (KeyboardInterrupt, PgvectorError):
        console.say(f"interrupted; erased: {receipt.removed_text(removed)}; run the same command again to continue")
        raise
    return removed


def _in_transactions(database: Database) -> Run:
    """Runs each function in a transaction, and rests after it, so that agents go on.

    Agents that add vectors to the same rows may lock them in another order: then the transaction is tried again.
    """

    def run(work: Callable[[Connection], Any]) -> Any:
        for left in reversed(range(TRIES)):
            started = time.monotonic()
            try:
                with database.transaction(statement_timeout_s=STATEMENT_S) as connection:
                    result = work(connection)
                break
            except DatabaseUnavailable:
                if not left:
                    raise
            finally:
                time.sleep(REST * min(REST_S_MAX, time.monotonic() - started))
        return result

    return run


def _clear_server_alone(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Clear what the server holds of rows that were erased before. Returns as `erase`."""
    if not console.agreed(args, "Rewrite all tables? Agents wait for each of them."):
        return 1
    holders = _clear_server(home, console, args, load(home))
    return receipt.show(console, {"themes": [], "plan": []}, {}, holders)


def _clear_server(home: Path, console: Console, args: argparse.Namespace, settings: Settings) -> list[Holder]:
    """Clear planner statistics, and on confirmation the files of the tables; returns what the server still holds."""
    dsn, _ = administrators_dsn(settings, home, console, args.dsn)
    with admin_connection(dsn) as admin:
        verify(admin)
        server = traces.look(admin)
        with console.busy("computing planner statistics"):
            traces.clear_statistics(admin, delete=server.statistics)
        old: list[str] = []
        done = False
        if server.vacuum and (args.vacuum or (not args.yes and _confirmed(console, server))):
            with console.busy("waiting for old transactions"):
                old = traces.old_transactions(admin)
            if not old:
                _rewrite(console, admin)
                done = True
        elif args.vacuum:
            console.say(f"role {server.role} may not rewrite the tables; give the administrator's --dsn")
    again = "hermes-pgvector erase --vacuum" + ("" if server.vacuum and not args.dsn else f" --dsn {ADMINISTRATOR}")
    return list(receipt.of_server(server, rewritten=done, again=again, old=old))


def _confirmed(console: Console, server: traces.Server) -> bool:
    console.say(f"the files of the tables hold the deleted rows; VACUUM FULL writes them anew ({size(server.bytes)}).")
    return console.confirm("Run it now? Agents wait for each table, and keep their events meanwhile.", default=False)


def _rewrite(console: Console, admin: Any) -> None:
    with console.progress() as bar:
        task = bar.add_task("rewriting", total=len(traces.tables(admin)) + traces.FURTHER_STEPS)
        for name in traces.rewrite(admin):
            bar.update(task, description=f"rewriting {name.removeprefix('pg_catalog.')}")
            bar.advance(task)


def _show_erased(home: Path, console: Console) -> int:
    with connection(home, COUNT_S_MAX) as reading:
        found = marks.listed(reading, LISTED_MAX)
    console.data({"erasures": [asdict(summary) for summary in found]})
    if not found:
        console.show("nothing was erased")
        return 0
    rows: list[dict[str, Cell]] = [
        {
            "Erased": local_time(one.at), "What": _what(one), "Late events": one.dropped,
            "Last": local_time(one.dropped_at), "Theme": safe_line(one.theme, SHOWN_CHARS),
        }
        for one in found
    ]  # fmt: skip
    console.show(rows_table(rows))
    return 0


def _what(one: marks.Summary) -> str:
    if one.whole:
        return "all"
    numbers = {"session": one.sessions, "text": one.texts}
    return ", ".join(counted(number, what) for what, number in numbers.items() if number)
