"""The command line: one tree for `hermes-pgvector`, `python -m hermes_memory_pgvector` and `hermes pgvector`.

Exit codes, the same for every command:

    0    all is well
    1    a problem was found, or something could not be done; stderr says what, and what to do
    2    the command was used wrongly
    130  interrupted by the operator

Data goes to stdout, with `--json` as one JSON document; prose goes to stderr. The host imports this module to build
its own command line, so everything else is imported when a command runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from .errors import BadArgument, PgvectorError
from .host import hermes_home
from .version import __version__

if TYPE_CHECKING:
    from .admin.console import Console

FINE, PROBLEM, USAGE, INTERRUPTED = 0, 1, 2, 130

Parser: TypeAlias = argparse.ArgumentParser
Job: TypeAlias = "Callable[[argparse.Namespace, Path, Console], int]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; a wrong one ends in SystemExit(2)."""
    parser = argparse.ArgumentParser(
        prog="hermes-pgvector", description="Look after the Postgres memory of Hermes agents.", allow_abbrev=False
    )
    register_cli(parser)
    return run(parser.parse_args(argv))


def pgvector_command(args: argparse.Namespace) -> None:
    """Run what the host parsed. One host ignores what a handler returns, so a failure is raised as SystemExit."""
    code = run(args)
    if code != FINE:
        raise SystemExit(code)


def register_cli(parser: Parser) -> None:
    """Put the commands into a parser, ours or the one that the host made for `hermes pgvector`."""
    parser.add_argument("--version", action="version", version=f"hermes-pgvector {__version__}")
    parser.set_defaults(pgvector_job=None, pgvector_help=parser.format_help)
    _add_common(parser, None, False)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")

    def add(name: str, job: Job, text: str) -> Parser:
        command = commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.", allow_abbrev=False)
        command.set_defaults(pgvector_job=job)
        # A default here would undo what was given before the command's name.
        _add_common(command, argparse.SUPPRESS, argparse.SUPPRESS)
        return command

    install = add("install", _install, "link this package into HERMES_HOME/plugins, where the host looks for it")
    install.add_argument("--remove", action="store_true", help="take the link away again")
    _add_setup(add("setup", _setup, "choose database and embedder, try them, save, activate, and prove that it works"))
    _add_migrate(add("migrate", _migrate, "create or upgrade the tables, as the database's administrator"))
    status = add("status", _status, "show the database, its totals, and what waits on this host")
    status.add_argument("--themes", type=_number(0), default=20, metavar="N", help="list the N biggest (default 20)")
    _add_search(add("search", _search, "search the memory as an agent would"))
    add("doctor", _doctor, "check everything and tell the remedies")
    _add_server(add("server", _server, "show, start or stop the embedded Postgres"))
    _add_backfill(add("backfill", _backfill, "embed rows that have no vector yet, in the foreground"))
    add("version", _version, "show the version")


def run(args: argparse.Namespace) -> int:
    """Run the parsed command; every error of ours becomes one line on stderr. HERMES_PGVECTOR_DEBUG=1 shows it all."""
    if args.pgvector_job is None:
        sys.stderr.write(args.pgvector_help())
        return USAGE
    debug = _set_up_log()
    try:
        home = Path(args.pgvector_home or hermes_home()).expanduser().resolve()
        _load_environment(home)
        from .admin.console import Console

        job: Job = args.pgvector_job
        code = job(args, home, Console(args.pgvector_json))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has seen enough; the interpreter must not fail when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PROBLEM
    except ModuleNotFoundError as error:
        return _failed(error, f"the package {error.name} is missing; run: pip install hermes-memory-pgvector", debug)
    except PgvectorError as error:
        return _failed(error, str(error), debug)


def _failed(error: Exception, message: str, debug: bool) -> int:
    if debug:
        raise error
    print(f"hermes-pgvector: {message}", file=sys.stderr)
    return USAGE if isinstance(error, BadArgument) else PROBLEM


def _set_up_log() -> bool:
    """With HERMES_PGVECTOR_DEBUG all is logged to stderr; else the commands tell what matters themselves."""
    import logging

    debug = os.environ.get("HERMES_PGVECTOR_DEBUG", "") not in ("", "0")
    log = logging.getLogger("hermes.pgvector")
    log.addHandler(logging.StreamHandler() if debug else logging.NullHandler())
    if debug:
        log.setLevel(logging.DEBUG)
    return debug


def _load_environment(home: Path) -> None:
    """Do as the host does: what `.env` of the home says counts where the process says nothing."""
    if (home / ".env").is_file():
        from dotenv import load_dotenv

        load_dotenv(home / ".env", interpolate=False)


# The arguments of each command


def _add_common(parser: Parser, home: str | None, as_json: str | bool) -> None:
    # Names of our own: the host's namespace is full of names, too.
    parser.add_argument(
        "--home",
        dest="pgvector_home",
        metavar="DIR",
        default=home,
        help="the HERMES_HOME to look at (default: the current)",
    )
    parser.add_argument(
        "--json", dest="pgvector_json", action="store_true", default=as_json, help="print one JSON document on stdout"
    )


def _add_setup(parser: Parser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--embedded", action="store_true", help="use the embedded Postgres")
    where.add_argument("--dsn", help="use this Postgres (a password belongs into HERMES_PGVECTOR_DSN, or ~/.pgpass)")
    parser.add_argument("--embed-url", metavar="URL", help="the embedding endpoint; empty: the bundled model")
    parser.add_argument("--embed-model", metavar="NAME", help="the model to ask for")
    parser.add_argument("--yes", action="store_true", help="ask nothing; what is not given stays as it is set now")


def _add_migrate(parser: Parser) -> None:
    parser.add_argument(
        "--dsn",
        default="",
        help="the administrator's connection; default: HERMES_PGVECTOR_ADMIN_DSN, else the settings",
    )
    parser.add_argument("--runtime-role", metavar="NAME", help="let this role read and write rows, and nothing else")
    parser.add_argument(
        "--dimensions",
        type=_number(1, 4000),
        metavar="N",
        help="length of the vectors, for new tables (default: the embedder's)",
    )


def _add_search(parser: Parser) -> None:
    parser.add_argument("query", help="what to look for")
    parser.add_argument("--top-k", type=_number(1), default=10, metavar="N", help="most hits of each kind (default 10)")
    parser.add_argument("--theme", default="", metavar="T", help="ask as this theme (default: default)")
    parser.add_argument(
        "--scope", default="", metavar="S", help="current, session, all or a theme (default: the setting)"
    )
    parser.add_argument("--session", default="", metavar="ID", help="the session of scope `session`")
    parser.add_argument(
        "--kind", choices=("memory", "turns", "both"), default="both", help="what to search (default both)"
    )
    parser.add_argument("--target", choices=("memory", "user"), help="only entries of MEMORY.md or of USER.md")
    parser.add_argument("--explain", action="store_true", help="show how the answer came about")


def _add_server(parser: Parser) -> None:
    parser.add_argument("action", choices=("status", "start", "stop"))
    parser.add_argument(
        "--mode",
        choices=("smart", "fast", "immediate"),
        default="fast",
        help="how to stop, as pg_ctl has it (default fast)",
    )


def _add_backfill(parser: Parser) -> None:
    parser.add_argument("--batch", type=_number(1, 512), metavar="N", help="most rows in one request")
    parser.add_argument("--limit", type=_number(1), metavar="N", help="stop after this many rows")
    parser.add_argument(
        "--wait", type=_number(0), default=45, metavar="S",
        help="seconds to watch an agent that does it already, as long as it makes no progress (default 45)",
    )  # fmt: skip


def _number(least: int, most: int | None = None) -> Callable[[str], int]:
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


# From arguments to jobs


def _install(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .admin import link

    return link.install(home, console, remove=args.remove)


def _setup(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .admin import setup

    given = setup.Given(
        embedded=args.embedded, dsn=args.dsn, embed_url=args.embed_url, embed_model=args.embed_model, yes=args.yes
    )
    return setup.setup(home, console, given)


def _migrate(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .admin import migration

    return migration.migrate(home, console, dsn=args.dsn, role=args.runtime_role, dimensions=args.dimensions)


def _status(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .admin import report

    return report.status(home, console, themes_max=args.themes)


def _search(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .admin import search

    return search.search(
        home,
        console,
        query=args.query,
        top_k=args.top_k,
        theme=args.theme,
        scope=args.scope,
        session=args.session,
        kind=args.kind,
        target=args.target,
        explain=args.explain,
    )


def _doctor(args: argparse.Namespace, home: Path, console: Console) -> int:  # noqa: ARG001
    from .admin import doctor

    return doctor.doctor(home, console)


def _server(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .admin import server

    if args.action == "stop":
        return server.stop(home, console, mode=args.mode)
    return server.start(home, console) if args.action == "start" else server.status(home, console)


def _backfill(args: argparse.Namespace, home: Path, console: Console) -> int:
    from .admin import upkeep

    return upkeep.backfill(home, console, batch=args.batch, limit=args.limit, wait_s=args.wait)


def _version(args: argparse.Namespace, home: Path, console: Console) -> int:  # noqa: ARG001
    console.data({"version": __version__})
    console.show(f"hermes-pgvector {__version__}")
    return FINE
