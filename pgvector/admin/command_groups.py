"""The help of all commands, in groups. The hosts import this."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Mapping
from textwrap import fill

from .command_parser import COMMAND, EXIT_CODES, Parser

GROUPS: Mapping[str, str] = {
    "set up": "install setup migrate settings grants completion version",
    "see how it is": "status doctor watch metrics serve",
    "read": "search preview browse list show themes sessions history stats",
    "change": "add edit undo facts relieve remap person",
    "decide what is held back": "capture pending quarantine",
    "delete": "prune dedupe erase",
    "move": "export import backup restore",
    "maintain": "server spool backfill reembed tune",
    "connect other agents": "mcp",
}
COLUMN = 15


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Leaves out the list of commands, which the groups take the place of."""

    def add_argument(self, action: argparse.Action) -> None:
        """Add the help of an argument."""
        if action.metavar != COMMAND:
            super().add_argument(action)


def group(parser: Parser, texts: Mapping[str, str]) -> None:
    """Have the help of a parser list its commands in groups. `texts` has a line on each command."""
    parser.formatter_class = _Formatter
    parser.epilog = "\n".join((*_lines(texts), "", _filled(EXIT_CODES, "", "")))


def _lines(texts: Mapping[str, str]) -> Iterator[str]:
    for title, names in GROUPS.items():
        yield f"{title}:"
        for name in names.split():
            yield _filled(texts[name], f"  {name}".ljust(COLUMN), " " * COLUMN)


def _filled(text: str, start: str, indent: str) -> str:
    """The text in lines as wide as argparse makes them."""
    width = max(40, shutil.get_terminal_size().columns - 2)
    return fill(text, width, initial_indent=start, subsequent_indent=indent)
