"""Types of command-line arguments, and the options of every command. The hosts import this: no heavy imports."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from datetime import datetime

from ..errors import BadArgument
from ..text import times


def add_common(parser: argparse.ArgumentParser, *, default: bool) -> None:
    """Add `--home` and `--json`. Without `default` a parser keeps what was given before the command's name."""
    # The prefix keeps them apart from names of the host.
    parser.add_argument(
        "--home",
        dest="pgvector_home",
        metavar="DIR",
        type=folder,
        default=None if default else argparse.SUPPRESS,
        help="the HERMES_HOME to use (default: the current one)",
    )
    parser.add_argument(
        "--json",
        dest="pgvector_json",
        action="store_true",
        default=False if default else argparse.SUPPRESS,
        help="print one JSON document on stdout",
    )


def folder(text: str) -> str:
    """The path of a folder, which need not exist."""
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
            bounds = f"from {least} to {most}" if most else f"at least {least}"
            raise argparse.ArgumentTypeError(f"{number} must be {bounds}")
        return number

    return parse


def since(text: str) -> datetime:
    """The start of a date, a time, or a time before now, in the local time zone; an empty text is an error."""
    try:
        found = times.since(text, "it", zone=None)
    except BadArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found is None:
        raise argparse.ArgumentTypeError("it is empty")
    return found
