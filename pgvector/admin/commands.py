"""The commands: arguments of each, and the call of its module, which is imported when the command runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..text import times
from ..version import __version__
from .arguments import add_common, number, since

if TYPE_CHECKING:
    from .console import Console

Parser: TypeAlias = argparse.ArgumentParser
# Runs a command in a home and returns its exit code.
Job: TypeAlias = "Callable[[argparse.Namespace, Path, Console], int]"

TARGET_HELP = "only entries of MEMORY.md (memory) or of USER.md (user)"
TIME_HELP = "a date, a time (ISO; local unless it names a time zone) or an age (30m, 12h, 7d)"


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_parser(commands: Commands, name: str, text: str, job: Job | None = None) -> Parser:
    """Add a command or an action with the common options; `text` is its help, `job` becomes `pgvector_job`."""
    parser = commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.", allow_abbrev=False)
    add_common(parser, default=False)
    if job is not None:
        parser.set_defaults(pgvector_job=job)
    return parser


def add_commands(parser: Parser) -> None:
    """Add all commands to a parser."""
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    install = add_parser(
        commands, "install", "link this package into HERMES_HOME/plugins, where hosts look for it", _install
    )
    install.add_argument("--remove", action="store_true", help="delete the link")
    _add_setup_arguments(
        add_parser(
            commands, "setup", "choose a database and an embedding model, save the settings, and test them", _setup
        )
    )
    migrate = add_parser(commands, "migrate", "create or upgrade the tables, as the database's administrator", _migrate)
    migrate.add_argument(
        "--dsn",
        default="",
        help="the administrator's connection string (default: HERMES_PGVECTOR_ADMIN_DSN, else that of the settings)",
    )
    migrate.add_argument("--runtime-role", metavar="NAME", help="let this role read and write rows, and nothing else")
    migrate.add_argument(
        "--dimensions",
        type=number(1, 4000),
        metavar="N",
        help="the number of dimensions of vectors, for new tables (default: that of the embedding model)",
    )
    status = add_parser(commands, "status", "show the database, what is stored, and what waits on this host", _status)
    status.add_argument("--themes", type=number(0), default=20, metavar="N", help="list the N largest (default 20)")
    _add_search_arguments(add_parser(commands, "search", "search the memory as an agent does", _search))
    add_parser(commands, "doctor", "check everything and print a remedy for each problem", _doctor)
    _add_spool_actions(
        add_parser(commands, "spool", "list, retry or delete dead letters; store waiting events", _spool)
    )
    server = add_parser(commands, "server", "show, start or stop the embedded Postgres", _server)
    server.add_argument("action", choices=("status", "start", "stop"))
    server.add_argument(
        "--mode",
        choices=("smart", "fast", "immediate"),
        default="fast",
        help="how to stop, as in pg_ctl (default fast)",
    )
    backfill = add_parser(commands, "backfill", "embed rows that have no vector, in the foreground", _backfill)
    backfill.add_argument("--batch", type=number(1, 512), metavar="N", help="the largest number of texts in a request")
    backfill.add_argument("--limit", type=number(1), metavar="N", help="stop after this many rows")
    backfill.add_argument(
        "--wait", type=number(0), default=45, metavar="S",
        help="while an agent does the same, wait until it makes no progress for S seconds (default 45)",
    )  # fmt: skip
    history = add_parser(
        commands, "history", "show earlier versions of entries that were replaced or removed", _history
    )
    history.add_argument("--theme", default="", metavar="T", help="only of this theme (default: all)")
    history.add_argument("--target", choices=("memory", "user"), help=TARGET_HELP)
    history.add_argument("--limit", type=number(1, 10_000), default=20, metavar="N", help="the newest N (default 20)")
    history.add_argument("--since", type=since, metavar="TIME", help=f"only changes after {TIME_HELP}")
    undo = add_parser(commands, "undo", "restore an entry of the history", _undo)
    undo.add_argument("id", type=number(1), metavar="ID", help="its number in the history")
    tune = add_parser(commands, "tune", "propose and build separate graph indexes for the largest themes", _tune)
    tune.add_argument("--dsn", default="", help="the administrator's connection string (default: as for migrate)")
    tune.add_argument("--apply", action="store_true", help="build and drop what is proposed")
    tune.add_argument(
        "--rows-min", type=number(1), metavar="N", help="least rows of such a theme (default: above exact_rows_max)"
    )
    tune.add_argument(
        "--indexes-max", type=number(0, 50), default=24, metavar="N", help="most such indexes (default 24)"
    )
    add_parser(commands, "version", "show the version", _version)


def _add_setup_arguments(parser: Parser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--embedded", action="store_true", help="use the embedded Postgres")
    where.add_argument("--dsn", help="use this Postgres; put a password into HERMES_PGVECTOR_DSN or ~/.pgpass instead")
    parser.add_argument("--embed-url", metavar="URL", help="the embedding endpoint; empty: the bundled model")
    parser.add_argument("--embed-model", metavar="NAME", help="the name of the model")
    parser.add_argument("--yes", action="store_true", help="ask no questions; settings that are not given are kept")


def _add_search_arguments(parser: Parser) -> None:
    parser.add_argument("query", help="the text to search for")
    parser.add_argument("--top-k", type=number(1), default=10, metavar="N", help="most hits of each kind (default 10)")
    parser.add_argument("--theme", default="", metavar="T", help="search as this theme (default: default)")
    parser.add_argument(
        "--scope", default="", metavar="S", help="current, session, all or a theme (default: the setting)"
    )
    parser.add_argument("--session", default="", metavar="ID", help="the session of scope `session`")
    parser.add_argument(
        "--kind", choices=("memory", "turns", "both"), default="both", help="what to search (default both)"
    )
    parser.add_argument("--target", choices=("memory", "user"), help=TARGET_HELP)
    parser.add_argument("--role", choices=("user", "assistant"), help="only turns of this side")
    parser.add_argument("--since", default="", metavar="TIME", help=f"nothing older than {TIME_HELP}")
    parser.add_argument("--until", default="", metavar="TIME", help="nothing newer; a date includes the whole day")
    parser.add_argument(
        "--context",
        type=number(0, 3),
        default=0,
        metavar="N",
        help="turns to show before and after each turn found (default 0)",
    )
    parser.add_argument("--explain", action="store_true", help="show how the answer came about")


def _add_spool_actions(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_parser(actions, "list", "list the dead letters (events that could not be stored), and the spools")
    show = add_parser(actions, "show", "print one dead letter with all its texts")
    show.add_argument("id", metavar="ID", help="its id, or the start of it")
    retry = add_parser(actions, "retry", "try to store dead letters again")
    retry.add_argument("--theme", default="", metavar="T", help="store them under this theme")
    drop = add_parser(actions, "drop", "delete dead letters")
    drop.add_argument("--yes", action="store_true", help="required to delete all of them")
    flush = add_parser(actions, "flush", "store the events that ended processes left in their spools")
    for action in (retry, drop):
        which = action.add_mutually_exclusive_group(required=True)
        which.add_argument("id", nargs="?", default="", metavar="ID", help="its id, or the start of it")
        which.add_argument("--all", action="store_true", help="all dead letters")
    for action in (retry, flush):
        action.add_argument("--wait", type=number(1), default=30, metavar="S", help="seconds to retry (default 30)")


def _install(args: argparse.Namespace, home: Path, console: Console) -> int:
    from . import link

    return link.install(home, console, remove=args.remove)


def _setup(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .setup.wizard import Given, setup

    given = Given(
        embedded=args.embedded, dsn=args.dsn, embed_url=args.embed_url, embed_model=args.embed_model, yes=args.yes
    )
    return setup(home, console, given)


def _migrate(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .migration import migrate

    return migrate(home, console, dsn=args.dsn, role=args.runtime_role, dimensions=args.dimensions)


def _status(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .status import status

    return status(home, console, themes_max=args.themes)


def _search(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .search import Question, search

    question = Question(
        query=args.query,
        top_k=args.top_k,
        theme=args.theme,
        scope=args.scope,
        session=args.session,
        kind=args.kind,
        target=args.target,
        role=args.role or "",
        since=times.since(args.since, "--since", zone=None),
        until=times.until(args.until, "--until", zone=None),
        context=args.context,
    )
    return search(home, console, question, explain=args.explain)


def _doctor(args: argparse.Namespace, home: Path, console: Console) -> int:  # noqa: ARG001
    from .doctor.report import doctor

    return doctor(home, console)


def _server(args: argparse.Namespace, home: Path, console: Console) -> int:
    from . import server

    if args.action == "stop":
        return server.stop(home, console, mode=args.mode)
    return server.start(home, console) if args.action == "start" else server.status(home, console)


def _spool(args: argparse.Namespace, home: Path, console: Console) -> int:
    from . import spool

    match args.action:
        case "list":
            return spool.show_all(home, console)
        case "show":
            return spool.show(home, console, name=args.id)
        case "retry":
            return spool.retry(home, console, name=args.id, theme=args.theme, wait_s=args.wait)
        case "drop":
            return spool.drop(home, console, name=args.id, sure=args.yes)
    return spool.flush(home, console, wait_s=args.wait)


def _backfill(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .backfill import backfill

    return backfill(home, console, batch=args.batch, limit=args.limit, wait_s=args.wait)


def _history(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .history import history

    return history(home, console, theme=args.theme, target=args.target or "", limit=args.limit, since=args.since)


def _undo(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .history import undo

    return undo(home, console, number=args.id)


def _tune(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .tune import tune

    return tune(home, console, dsn=args.dsn, apply=args.apply, rows_min=args.rows_min, indexes_max=args.indexes_max)


def _version(args: argparse.Namespace, home: Path, console: Console) -> int:  # noqa: ARG001
    console.data({"version": __version__})
    console.show(f"hermes-pgvector {__version__}")
    return 0
