"""The arguments of `erase`. The hosts import this, so it imports none of their modules."""

from __future__ import annotations

from ..command_parser import BIGINT_MAX, Commands, Filled, add, add_administrator, number


def add_commands(commands: Commands) -> None:
    """Add the command."""
    text = "delete rows for good, with their history and what waits in this home; shows them first"
    erase = add(commands, "erase", text, "erase.command:erase")
    which = erase.add_mutually_exclusive_group()
    text = "an entry, with its earlier texts, by its id"
    which.add_argument("id", nargs="?", type=number(1, BIGINT_MAX), metavar="ID", help=text)
    text = "all rows that contain this text, in any case; - reads it from the standard input"
    which.add_argument("--text", action=Filled, default="", metavar="TEXT", help=text)
    text = "what was said and written in this session"
    which.add_argument("--session", action=Filled, default="", metavar="ID", help=text)
    text = "all of a person, whose accounts are asked for"
    which.add_argument("--person", action="store_true", help=text)
    which.add_argument(
        "--list", action="store_true", help="list what was erased, and how many late events were dropped"
    )
    kind = erase.add_mutually_exclusive_group()
    kind.add_argument("--turn", action="store_true", help="the id is that of a turn")
    kind.add_argument("--fact", action="store_true", help="the id is that of a fact")
    text = "only rows of this theme; alone: all of the theme"
    erase.add_argument("--theme", action=Filled, default="", metavar="T", help=text)
    text = "the profile of the accounts (default: this home's)"
    erase.add_argument("--profile", action=Filled, default="", metavar="P", help=text)
    text = "rewrite the tables afterwards, so that their files hold nothing of it; agents wait meanwhile"
    erase.add_argument("--vacuum", action="store_true", help=text)
    add_administrator(erase)
    erase.add_argument("--yes", action="store_true", help="ask no question; accounts are read all the same")
