"""The parser of a command with its common options, and what the arguments of several commands share.

The hosts import this.
"""

from __future__ import annotations

import argparse
from argparse import SUPPRESS
from collections.abc import Callable
from typing import Any, TypeAlias

Parser: TypeAlias = argparse.ArgumentParser
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

TIME_HELP = "a date, a time (ISO; local unless it names a time zone) or an age (30m, 12h, 7d)"
THEMES_HELP = "only of this theme, or of themes like this pattern (ops-*); give it again for others"
ROLES = ("user", "assistant", "system", "tool")
EXIT_CODES = (
    "exit codes: 0 success; 1 a problem was found, or something could not be done; 2 wrong usage; 3 done, but the "
    "memory needs attention; 128 + N ended by signal N"
)
# What stands for the name of a command in its usage.
COMMAND = "COMMAND"
# A bigint of Postgres.
BIGINT_MAX = (1 << 63) - 1


class Once(argparse.Action):
    """Stores a value, or appends it where the default is a list; refuses a second one that would replace the first."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,  # noqa: ARG002
    ) -> None:
        """Store or append the value. Raises ArgumentError when there is one that it would replace."""
        held = getattr(namespace, self.dest, None)
        if held and not isinstance(held, list):
            # No value is shown: it may be a connection string.
            raise argparse.ArgumentError(self, "it was given twice and takes one value; run the command once for each")
        setattr(namespace, self.dest, [*held, values] if isinstance(held, list) else values)


class Filled(Once):
    """Refuses an empty value, too.

    A script gives one whose variable is not set. Taken as no condition, it would let a command delete more.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        """Store or append the value. Raises ArgumentError when it is empty, or as `Once` does."""
        if not values.strip():
            raise argparse.ArgumentError(self, f"{values!r} is empty; give a value, or leave the option out")
        super().__call__(parser, namespace, values, option)


def add(commands: Commands, name: str, text: str, job: str) -> Parser:
    """Add a command or an action with the common options.

    `text` is its help; `job` is its `module:function` in admin, or empty for a group of actions.
    """
    parser = commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.", allow_abbrev=False)
    add_common(parser)
    parser.set_defaults(pgvector_job=job or None, pgvector_command=parser)
    return parser


def add_common(parser: Parser) -> None:
    """Add `--home` and `--json`. They have no default, which would replace what stands before the command's name."""
    text = "the home to use (default: that of hermes: $HERMES_HOME or ~/.hermes, or the profile in use)"
    parser.add_argument("--home", action=Filled, dest="pgvector_home", metavar="DIR", default=SUPPRESS, help=text)
    text = "print one JSON document on stdout"
    parser.add_argument("--json", dest="pgvector_json", action="store_true", default=SUPPRESS, help=text)


def add_administrator(parser: Parser) -> None:
    """Add `--dsn`, the connection string of an administrator."""
    text = "the administrator's connection string (default: HERMES_PGVECTOR_ADMIN_DSN, else that of the settings)"
    parser.add_argument("--dsn", action=Filled, default="", help=text)


def stored_text(text: str) -> str:
    """The type of a text that is stored: as bytes that are not UTF-8 it would be stored with replacements."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("it is not text in UTF-8; set the terminal or LANG to UTF-8") from None
    return text


def number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of a whole number in these bounds."""

    def parse(text: str) -> int:
        try:
            given = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if given < least or (most is not None and given > most):
            bounds = f"from {least} to {most}" if most else f"at least {least}"
            raise argparse.ArgumentTypeError(f"{given} must be {bounds}")
        return given

    return parse
