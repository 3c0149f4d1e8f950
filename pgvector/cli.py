"""The command line of `hermes-pgvector`, `python -m hermes_memory_pgvector` and `hermes pgvector`.

Exit codes, the same for every command:

    0        success
    1        a problem was found, or something could not be done; stderr says what, and what to do
    2        wrong usage
    3        done, but the memory needs attention
    128 + N  ended by signal N: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP

Data goes to stdout, with `--json` as one JSON document; messages go to stderr. The hosts import this module to build
their own command line, so everything else is imported when a command runs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

from .admin.commands import add_commands
from .errors import BadArgument, DatabaseUnavailable, PgvectorError, SettingsError, cure, explained
from .hosts.config import env_values
from .hosts.environment import hermes_home, shell_home, typed
from .hosts.installation import pip_install
from .version import __version__

SUCCESS, PROBLEM, USAGE, INTERRUPTED = 0, 1, 2, 128 + signal.SIGINT
# They end by handlers of their own.
SERVERS = ("mcp:serve", "web.command:serve")
SETUP = "setup.wizard:setup"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code. Raises SystemExit: 2 for wrong usage, 0 after a help text."""
    try:
        return run(_parsed(argv))
    except KeyboardInterrupt:
        return INTERRUPTED


@cache
def _parser() -> argparse.ArgumentParser:
    """The parser of `hermes-pgvector`. Building it takes as long as some commands."""
    parser = argparse.ArgumentParser(
        prog="hermes-pgvector", description="Manage the Postgres memory of Hermes agents.", allow_abbrev=False
    )
    register_cli(parser)
    return parser


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    args, unknown = _parser().parse_known_args(argv)
    if unknown:
        args.pgvector_command.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def pgvector_command(args: argparse.Namespace) -> None:
    """Run what the host parsed. Raises SystemExit for a failure: one host ignores what a handler returns."""
    # The host has chosen the profile already.
    args.pgvector_home = args.pgvector_home or str(hermes_home())
    code = run(args)
    if code != SUCCESS:
        raise SystemExit(code)


def register_cli(parser: argparse.ArgumentParser) -> None:
    """Add the commands to a parser: that of `main`, or the one that a host made for `hermes pgvector`."""
    parser.add_argument("--version", action="version", version=f"hermes-pgvector {__version__}")
    add_commands(parser)


def run(args: argparse.Namespace) -> int:
    """Run a parsed command and return its exit code.

    Prints an error as one line on stderr; with HERMES_PGVECTOR_DEBUG=1 the error is raised.
    """
    if args.pgvector_job is None:
        args.pgvector_command.print_help(sys.stderr)
        return USAGE
    _open_closed_streams()
    debug = _set_up_log()
    with _interruptions(args.pgvector_job) as came:
        return _run(args, came, debug)


def _run(args: argparse.Namespace, came: list[int], debug: bool) -> int:
    home = None
    try:
        home = _home(args.pgvector_home)
        there = next(path for path in (home, *home.parents) if path.exists())
        if not there.is_dir():
            raise BadArgument(f"{there} is not a folder")
        if args.pgvector_home and there != home:
            # It may be mistyped.
            print(f"hermes-pgvector: {home} does not exist yet", file=sys.stderr)
        _load_environment(home)
        from .admin.console import Console

        handler = resolve_name(f"{__package__}.admin.{args.pgvector_job}")
        return int(handler(home, Console(args.pgvector_json, home), args))
    except KeyboardInterrupt:
        return 128 + came[-1]
    except BrokenPipeError:
        return PROBLEM
    except OSError as error:
        what = f"{error.filename or 'a file'} cannot be used: {error.strerror or type(error).__name__}"
        return _failed(error, f"{what}; {cure(error, 'check it')}", debug)
    except ModuleNotFoundError as error:
        return _failed(error, f"the package {error.name} is missing; run: {pip_install()}", debug)
    except PgvectorError as error:
        said = explained(error)
        if isinstance(error, DatabaseUnavailable):
            said += _next_step(said, args)
        return _failed(error, said, debug, home)


def _next_step(problem: str, args: argparse.Namespace) -> str:
    """What to do about a database that cannot be used, to be added to the problem."""
    from .admin import refusal

    administrators = "HERMES_PGVECTOR_ADMIN_DSN"
    given = "dsn" in args and ("--dsn" if args.dsn else administrators if os.environ.get(administrators) else "")
    # `doctor` looks at the database of the home, not at that of an administrator.
    if not given:
        return "; for more: hermes-pgvector doctor"
    if not problem.startswith(refusal.CONNECTING):
        return ""
    variable = "HERMES_PGVECTOR_DSN" if args.pgvector_job == SETUP else administrators
    return f"; {refusal.remedy(problem, given, f'~/.pgpass or the connection string of {variable}')}"


@contextmanager
def _interruptions(job: str) -> Iterator[list[int]]:
    """Have SIGTERM and SIGHUP end a command as Ctrl-C does; yields a list whose last item is the signal that came.

    One that is ignored stays so, as under `nohup`. Later ones are ignored: a closed terminal sends several.
    """
    came, ours = [int(signal.SIGINT)], list[signal.Signals]()

    def interrupt(number: int, _: object) -> None:
        if len(came) == 1:
            came.append(number)
            raise KeyboardInterrupt

    try:
        with suppress(ValueError):  # not on the main thread
            for number in (signal.SIGTERM, signal.SIGHUP):
                if job not in SERVERS and signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, interrupt)
                    ours.append(number)
        yield came
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _failed(error: Exception, message: str, debug: bool, home: Path | None = None) -> int:
    if debug:
        raise error
    if home:
        message = typed(message, home)
    print(f"hermes-pgvector: {message}", file=sys.stderr)
    return USAGE if isinstance(error, BadArgument) else PROBLEM


def _open_closed_streams() -> None:
    """Replace standard streams that the caller has closed by the null device, as `>&-` in a shell closes them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _set_up_log() -> bool:
    """Log to stderr with HERMES_PGVECTOR_DEBUG=1, else nowhere: the commands print what matters. Returns which."""
    import logging

    debug = os.environ.get("HERMES_PGVECTOR_DEBUG", "") not in ("", "0")
    log = logging.getLogger("hermes.pgvector")
    log.addHandler(logging.StreamHandler() if debug else logging.NullHandler())
    if debug:
        log.setLevel(logging.DEBUG)
    return debug


def _home(given: str) -> Path:
    try:
        return Path(given or _home_of_shell()).expanduser().resolve()
    except RuntimeError:
        what = f"there is no account for {given}" if given else "this account has no home folder"
        raise BadArgument(f"{what}; name the home of hermes with --home") from None


def _home_of_shell() -> Path:
    """The home that `hermes` would use; a person at a terminal is told of a profile that no variable names."""
    home, profile = shell_home()
    if profile and sys.stderr.isatty():
        print(f"profile {profile} is in use: {home}", file=sys.stderr)
    return home


def _load_environment(home: Path) -> None:
    """Add the variables of the home's `.env` that the environment lacks. Raises SettingsError."""
    for name, value in env_values(home).items():
        if value is not None and name not in os.environ:
            try:
                os.environ[name] = value
            except ValueError as error:
                raise SettingsError(f"{home / '.env'} cannot be used ({error}): correct the line of {name!r}") from None
