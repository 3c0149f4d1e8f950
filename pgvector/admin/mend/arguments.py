"""The arguments of the commands of this folder. The hosts import this, so it imports none of their modules."""

from __future__ import annotations

import argparse

from ..command_parser import (
    BIGINT_MAX,
    ROLES,
    THEMES_HELP,
    TIME_HELP,
    Commands,
    Filled,
    add,
    add_administrator,
    number,
    stored_text,
)

CHARS_MAX = 1_000_000
GROUPS_MAX = 100_000
SIMILARITY = 0.9


def add_commands(commands: Commands) -> None:
    """Add the commands."""
    prune = add(commands, "prune", "delete old, long or other turns for good, after a plan", "mend.prune:prune")
    prune.add_argument("--theme", action=Filled, default=[], metavar="T", help=THEMES_HELP)
    text = f"only what is older than {TIME_HELP}"
    prune.add_argument("--before", action=Filled, default="", metavar="TIME", help=text)
    prune.add_argument("--role", choices=ROLES, default="", help="only turns of this side")
    text = "only texts with more than N characters"
    prune.add_argument("--longer-than", type=number(1, CHARS_MAX), default=0, metavar="N", help=text)
    kinds = prune.add_mutually_exclusive_group()
    kinds.add_argument("--entries", action="store_true", help="entries, too; the history keeps them")
    kinds.add_argument("--entries-only", action="store_true", help="entries and no turns")
    add_consent(prune)
    _add_dedupe(commands)
    text = "rename a theme, or join it to another; without names, list renamed themes"
    remap = add(commands, "remap", text, "mend.remap:remap")
    remap.add_argument("old", nargs="?", default="", metavar="OLD", help="the theme, as it is called now")
    text = "its new name, or the theme that it becomes a part of"
    remap.add_argument("new", nargs="?", default="", type=stored_text, metavar="NEW", help=text)
    text = "let this old name be a theme of its own again; the rows stay"
    remap.add_argument("--release", action=Filled, default="", metavar="OLD", help=text)
    text = "all themes that are named like persons, to the hashes that hash_personal_keys makes"
    remap.add_argument("--personal", action="store_true", help=text)
    add_consent(remap)
    text = "print a script by which a shell completes commands and options"
    completion = add(commands, "completion", text, "mend.completion:completion")
    completion.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"), help="the shell")


def add_quarantine(commands: Commands) -> None:
    """Add `quarantine`."""
    quarantine = add(commands, "quarantine", "list, show, release or erase rows that look like an attack", "")
    actions = quarantine.add_subparsers(dest="action", metavar="ACTION")
    text = "list the rows that look like an attack, which are held back from recalls, with the reasons"
    listing = add(actions, "list", text, "mend.quarantine:show_all")
    listing.add_argument("--theme", action=Filled, default=[], metavar="T", help=THEMES_HELP)
    listing.add_argument("--released", action="store_true", help="list the released rows instead")
    text = "list at most N rows, and count the others (default 50)"
    listing.add_argument("--limit", type=number(1, GROUPS_MAX), default=50, metavar="N", help=text)
    show = add(actions, "show", "print a row with the reasons", "mend.quarantine:show")
    release = add(actions, "release", "let a row be recalled again, until its text changes", "mend.quarantine:release")
    drop = add(actions, "drop", "delete a row for good, as `erase` does", "erase.command:erase")
    for action in (show, release, drop):
        action.add_argument("id", type=number(1, BIGINT_MAX), metavar="ID", help="its id, as the list shows it")
        action.add_argument("--turn", action="store_true", help="the id is that of a turn")
        text = "its theme (default: that of the only row with the id)"
        action.add_argument("--theme", action=Filled, default="", metavar="T", help=text)
    add_administrator(drop)
    drop.add_argument("--yes", action="store_true", help="ask no question")
    drop.set_defaults(fact=False, text="", session="", person=False, list=False, vacuum=False)


def _add_dedupe(commands: Commands) -> None:
    text = "find entries that say the same, and merge them, after a plan"
    dedupe = add(commands, "dedupe", text, "mend.dedupe:dedupe")
    dedupe.add_argument("--theme", action=Filled, default=[], metavar="T", help=THEMES_HELP)
    text = "entries (default), or turns: the same question with the same answer, deleted for good"
    dedupe.add_argument("--kind", choices=("entries", "turns"), default="entries", help=text)
    text = f"how similar entries of other words are at least, from 0.5 to 1 (default {SIMILARITY})"
    dedupe.add_argument("--similarity", type=_similarity, default=SIMILARITY, metavar="X", help=text)
    text = "find at most N groups (default 1000)"
    dedupe.add_argument("--limit", type=number(1, GROUPS_MAX), default=1000, metavar="N", help=text)
    text = "with --yes: merge entries of other words, too"
    dedupe.add_argument("--reworded", action="store_true", help=text)
    add_consent(dedupe)


def _similarity(text: str) -> float:
    """A cosine in its bounds."""
    try:
        given = float(text)
    except ValueError:
        given = 0.0
    if not 0.5 <= given <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0.5 to 1")
    return given


def add_consent(parser: argparse.ArgumentParser) -> None:
    """Add `--dry-run` and `--yes`, one of which `--json` needs."""
    consent = parser.add_mutually_exclusive_group()
    consent.add_argument("--dry-run", action="store_true", help="show the plan, and change nothing")
    consent.add_argument("--yes", action="store_true", help="ask no question")
