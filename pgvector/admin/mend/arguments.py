"""The arguments of the commands of this folder. The hosts import this, so it imports nothing of the others."""

from __future__ import annotations

import argparse
from collections.abc import Callable

ROLES = ("user", "assistant", "system", "tool")
CHARS_MAX = 1_000_000


def add_commands(
    add: Callable[[str, str, str], argparse.ArgumentParser], number: Callable[..., Callable[[str], int]], time_help: str
) -> None:
    """Add the commands: `add` makes one of its name, help and job, `number` the type of a whole number in bounds."""
    prune = add("prune", "delete old, long or other turns for good, after a plan", "mend.prune:prune")
    text = "only of this theme, or of themes like this pattern (ops-*); give it again for others"
    prune.add_argument("--theme", action="append", default=[], metavar="T", help=text)
    prune.add_argument("--before", default="", metavar="TIME", help=f"only what is older than {time_help}")
    prune.add_argument("--role", choices=ROLES, default="", help="only turns of this side")
    text = "only texts with more than N characters"
    prune.add_argument("--longer-than", type=number(1, CHARS_MAX), default=0, metavar="N", help=text)
    kinds = prune.add_mutually_exclusive_group()
    kinds.add_argument("--entries", action="store_true", help="entries, too; the history keeps them")
    kinds.add_argument("--entries-only", action="store_true", help="entries and no turns")
    add_consent(prune)
    remap = add(
        "remap", "rename a theme, or join it to another; without names, list renamed themes", "mend.remap:remap"
    )
    remap.add_argument("old", nargs="?", default="", metavar="OLD", help="the theme, as it is called now")
    text = "its new name, or the theme that it becomes a part of"
    remap.add_argument("new", nargs="?", default="", metavar="NEW", help=text)
    text = "let this old name be a theme of its own again; the rows stay"
    remap.add_argument("--release", default="", metavar="OLD", help=text)
    add_consent(remap)
    completion = add(
        "completion", "print a script by which a shell completes commands and options", "mend.completion:completion"
    )
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="the shell")


def add_consent(parser: argparse.ArgumentParser) -> None:
    """Add `--dry-run` and `--yes`, one of which `--json` needs."""
    consent = parser.add_mutually_exclusive_group()
    consent.add_argument("--dry-run", action="store_true", help="show the plan, and change nothing")
    consent.add_argument("--yes", action="store_true", help="ask no question")
