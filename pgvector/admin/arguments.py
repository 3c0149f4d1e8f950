"""The arguments of each command."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

from ..errors import BadArgument
from ..text import times

Parser: TypeAlias = argparse.ArgumentParser


def add_common(parser: Parser, home: str | None, as_json: str | bool) -> None:
    """What every command takes."""
    # Names of our own: the host's namespace is full of names, too.
    parser.add_argument(
        "--home",
        dest="pgvector_home",
        metavar="DIR",
        type=folder,
        default=home,
        help="the HERMES_HOME to look at (default: the current)",
    )
    parser.add_argument(
        "--json", dest="pgvector_json", action="store_true", default=as_json, help="print one JSON document on stdout"
    )


def add_setup(parser: Parser) -> None:
    """`setup`: what it need not ask."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--embedded", action="store_true", help="use the embedded Postgres")
    where.add_argument("--dsn", help="use this Postgres (a password belongs into HERMES_PGVECTOR_DSN, or ~/.pgpass)")
    parser.add_argument("--embed-url", metavar="URL", help="the embedding endpoint; empty: the bundled model")
    parser.add_argument("--embed-model", metavar="NAME", help="the model to ask for")
    parser.add_argument("--yes", action="store_true", help="ask nothing; what is not given stays as it is set now")


def add_migrate(parser: Parser) -> None:
    """`migrate`: whose tables, for whom."""
    parser.add_argument(
        "--dsn",
        default="",
        help="the administrator's connection; default: HERMES_PGVECTOR_ADMIN_DSN, else the settings",
    )
    parser.add_argument("--runtime-role", metavar="NAME", help="let this role read and write rows, and nothing else")
    parser.add_argument(
        "--dimensions",
        type=number(1, 4000),
        metavar="N",
        help="length of the vectors, for new tables (default: the embedder's)",
    )


def add_search(parser: Parser) -> None:
    """`search`: the question and its scope."""
    parser.add_argument("query", help="what to look for")
    parser.add_argument("--top-k", type=number(1), default=10, metavar="N", help="most hits of each kind (default 10)")
    parser.add_argument("--theme", default="", metavar="T", help="ask as this theme (default: default)")
    parser.add_argument(
        "--scope", default="", metavar="S", help="current, session, all or a theme (default: the setting)"
    )
    parser.add_argument("--session", default="", metavar="ID", help="the session of scope `session`")
    parser.add_argument(
        "--kind", choices=("memory", "turns", "both"), default="both", help="what to search (default both)"
    )
    parser.add_argument("--target", choices=("memory", "user"), help="only entries of MEMORY.md or of USER.md")
    parser.add_argument("--role", choices=("user", "assistant"), help="only turns of this side")
    parser.add_argument(
        "--since",
        default="",
        metavar="WHEN",
        help="nothing older than this date, time (ISO; local, unless it names a zone) or age (30m, 12h, 7d)",
    )
    parser.add_argument("--until", default="", metavar="WHEN", help="nothing newer; a date counts to its end")
    parser.add_argument(
        "--context",
        type=number(0, 3),
        default=0,
        metavar="N",
        help="turns before and after each turn found (default 0)",
    )
    parser.add_argument("--explain", action="store_true", help="show how the answer came about")


def add_server(parser: Parser) -> None:
    """`server`: what to do."""
    parser.add_argument("action", choices=("status", "start", "stop"))
    parser.add_argument(
        "--mode",
        choices=("smart", "fast", "immediate"),
        default="fast",
        help="how to stop, as pg_ctl has it (default fast)",
    )


def add_backfill(parser: Parser) -> None:
    """`backfill`: how much at a time, and how long to wait."""
    parser.add_argument("--batch", type=number(1, 512), metavar="N", help="most rows in one request")
    parser.add_argument("--limit", type=number(1), metavar="N", help="stop after this many rows")
    parser.add_argument(
        "--wait", type=number(0), default=45, metavar="S",
        help="seconds to watch an agent that does it already, as long as it makes no progress (default 45)",
    )  # fmt: skip


def add_spool(parser: Parser, add_action: Callable[[Parser], None]) -> None:
    """`spool`: what to do with which events. `add_action` gives each action what every command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, text: str) -> Parser:
        action = actions.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.", allow_abbrev=False)
        add_action(action)
        return action

    def choose(action: Parser) -> None:
        which = action.add_mutually_exclusive_group(required=True)
        which.add_argument("id", nargs="?", default="", metavar="ID", help="its id, or the beginning of it")
        which.add_argument("--all", action="store_true", help="every event that was set aside")

    def wait(action: Parser) -> None:
        action.add_argument(
            "--wait", type=number(1), default=30, metavar="S", help="seconds to go on trying (default 30)"
        )

    add("list", "list the events that were set aside, and the spools")
    add("show", "print one event that was set aside, whole").add_argument("id", metavar="ID", help="its id")
    retry = add("retry", "file events that were set aside once more, and store them")
    choose(retry)
    retry.add_argument("--theme", default="", metavar="T", help="file them under this theme")
    wait(retry)
    drop = add("drop", "delete events that were set aside")
    choose(drop)
    drop.add_argument("--yes", action="store_true", help="needed to delete all of them")
    wait(add("flush", "store now what dead processes left in their spools"))


def add_history(parser: Parser) -> None:
    """`history`: whose, of what, and since when."""
    parser.add_argument("--theme", default="", metavar="T", help="only of this theme (default: all)")
    parser.add_argument("--target", choices=("memory", "user"), help="only entries of MEMORY.md or of USER.md")
    parser.add_argument("--limit", type=number(1, 10_000), default=20, metavar="N", help="the newest N (default 20)")
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="only what went after this: a date, a time (ISO; local, unless it names a zone) or an age (30m, 12h, 7d)",
    )


def moment(text: str) -> datetime:
    """A parser of dates, times and ages, local as the command line prints them; an empty one is wrong."""
    try:
        found = times.since(text, "it", zone=None)
    except BadArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found is None:
        raise argparse.ArgumentTypeError("it is empty")
    return found


def add_tune(parser: Parser) -> None:
    """`tune`: whether to do it, and the bounds."""
    parser.add_argument("--dsn", default="", help="administrator's connection string (default: as for migrate)")
    parser.add_argument("--apply", action="store_true", help="build and drop what is proposed")
    parser.add_argument(
        "--rows-min", type=number(1), metavar="N", help="least rows of a theme (default: above exact_rows_max)"
    )
    parser.add_argument(
        "--indexes-max", type=number(0, 50), default=24, metavar="N", help="most such indexes (default 24)"
    )


def folder(text: str) -> str:
    """A parser of folders, which need not be there yet."""
    path = os.path.expanduser(text)
    if os.path.exists(path) and not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{text} is not a folder")
    return text


def number(least: int, most: int | None = None) -> Callable[[str], int]:
    """A parser of whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(
                f"{number} is not {f'from {least} to {most}' if most else f'at least {least}'}"
            )
        return number

    return parse
