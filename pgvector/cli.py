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

from .admin import INTERRUPTED, arguments, commands
from .errors import BadArgument, PgvectorError, explained
from .hosts.environment import hermes_home
from .hosts.installation import pip_install
from .version import __version__

if TYPE_CHECKING:
    from .admin.console import Console

FINE, PROBLEM, USAGE = 0, 1, 2

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
    arguments.add_common(parser, None, False)
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands")

    def add(name: str, job: Job, text: str) -> Parser:
        command = subparsers.add_parser(
            name, help=text, description=f"{text[:1].upper()}{text[1:]}.", allow_abbrev=False
        )
        command.set_defaults(pgvector_job=job)
        common(command)
        return command

    def common(command: Parser) -> None:
        # A default here would undo what was given before the command's name.
        arguments.add_common(command, argparse.SUPPRESS, argparse.SUPPRESS)

    install = add(
        "install", commands.install, "link this package into HERMES_HOME/plugins, where the host looks for it"
    )
    install.add_argument("--remove", action="store_true", help="take the link away again")
    arguments.add_setup(
        add("setup", commands.setup, "choose database and embedder, try them, save, activate, and prove that it works")
    )
    arguments.add_migrate(
        add("migrate", commands.migrate, "create or upgrade the tables, as the database's administrator")
    )
    status = add("status", commands.status, "show the database, its totals, and what waits on this host")
    status.add_argument(
        "--themes", type=arguments.number(0), default=20, metavar="N", help="list the N biggest (default 20)"
    )
    arguments.add_search(add("search", commands.search, "search the memory as an agent would"))
    add("doctor", commands.doctor, "check everything and tell the remedies")
    arguments.add_spool(add("spool", commands.spool, "see and settle what was set aside, and what waits"), common)
    arguments.add_server(add("server", commands.server, "show, start or stop the embedded Postgres"))
    arguments.add_backfill(add("backfill", commands.backfill, "embed rows that have no vector yet, in the foreground"))
    arguments.add_history(
        add("history", commands.history, "show what entries said before they were replaced or removed")
    )
    undo = add("undo", commands.undo, "bring back an entry of the history")
    undo.add_argument("id", type=arguments.number(1), metavar="ID", help="its number in the history")
    arguments.add_tune(add("tune", commands.tune, "propose graph indexes for the largest themes, and build them"))
    add("version", commands.version, "show the version")


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
        return job(args, home, Console(args.pgvector_json))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has seen enough; the interpreter must not fail when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PROBLEM
    except ModuleNotFoundError as error:
        return _failed(error, f"the package {error.name} is missing; run: {pip_install()}", debug)
    except PgvectorError as error:
        return _failed(error, explained(error), debug)


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
