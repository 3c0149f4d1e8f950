"""import: bring the memory of another package into a theme, with its history. A second import adds what is new."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import BadArgument
from ...hosts.environment import profile_name
from ...session.themes import Identity, aliased, allowed, home_theme
from ...settings import Settings, load
from ...store import imported_facts
from ...store.connection.database import Connection
from ...store.person_links import person_of
from ...text.sanitize import safe_line
from ...text.theme_names import normalise, reserved
from ..console import Console, counted
from ..database import connection
from . import hermes_memory

SHOWN_MAX = 20
REASON_CHARS_MAX = 160


@dataclass(frozen=True, slots=True)
class Target:
    """Where an import goes: a theme of a database, or nowhere with `dry_run`.

    `account` is the theme that was asked for, which may be linked to the person whose theme it is.
    """

    writing: Connection
    theme: str
    account: str
    dry_run: bool


Source = Callable[[Path, Target], Mapping[str, Any]]


def from_hermes_memory(path: Path, target: Target) -> Mapping[str, Any]:
    """Bring a memory.db of hermes-memory; returns what was found and what was new. Raises BadArgument, or Refused."""
    found = hermes_memory.read(path)
    merged = imported_facts.merged(target.writing, target.theme, found.facts)
    if not target.dry_run:
        names = {"origin": "hermes-memory", "account": target.account}
        imported_facts.add(target.writing, target.theme, merged, found.scopes, **names)
    return {
        "facts": len(found.facts), "new": len(merged.fresh), "known": len(merged.repeated),
        "statuses": dict(Counter(fact.status for fact in merged.fresh)),
        "superseded_here": len(merged.superseded), "scopes": len(found.scopes), "skipped": dict(found.skipped),
    }  # fmt: skip


SOURCES: Mapping[str, Source] = {"hermes-memory": from_hermes_memory}


def bring(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Import a file into a theme. Returns 0, or 1 when parts of it were skipped."""
    settings = load(home)
    named = _theme(args.theme, home, settings)
    with connection(home) as writing, writing.transaction():
        theme = person_of(writing, named)
        with console.busy("reading"):
            path = Path(args.path).expanduser()
            told = SOURCES[args.source](path, Target(writing, theme, named, args.dry_run))
    console.data({"source": args.source, "path": str(path), "theme": theme, "dry_run": args.dry_run, **told})
    _summarise(console, told, theme, dry_run=args.dry_run)
    return 1 if told["skipped"] else 0


def _theme(given: str, home: Path, settings: Settings) -> str:
    aliases = settings.theme_aliases
    own = Identity(agent_identity=profile_name(home))
    theme = aliased(normalise(given), aliases) if given else home_theme(own, aliases=aliases)
    if not theme or reserved(theme):
        raise BadArgument(f"theme {theme[:60]!r} is empty or reserved for one person or room; give another as --theme")
    if not allowed(theme, settings.allowed_themes):
        raise BadArgument(f"theme {theme[:60]!r} is not in allowed_themes; add it there, or give another as --theme")
    return theme


def _summarise(console: Console, told: Mapping[str, Any], theme: str, *, dry_run: bool) -> None:
    statuses = ", ".join(f"{number:,} {status}" for status, number in sorted(told["statuses"].items()))
    what = "would be new" if dry_run else "are new"
    new = f"{told['new']:,} {what} in theme {safe_line(theme, 60)}{f' ({statuses})' if statuses else ''}"
    console.say(f"found {counted(told['facts'], 'fact')} in {counted(told['scopes'], 'scope')}: {new}")
    if told["known"]:
        console.say(f"{counted(told['known'], 'fact')} of them the theme has already")
    if told["superseded_here"]:
        console.say(f"{counted(told['superseded_here'], 'fact')} of the theme are older and go into the history")
    for name, reason in list(told["skipped"].items())[:SHOWN_MAX]:
        console.say(f"hermes-pgvector: fact {safe_line(name, 60)} is skipped: {safe_line(reason, REASON_CHARS_MAX)}")
    if len(told["skipped"]) > SHOWN_MAX:
        console.say(f"hermes-pgvector: and {len(told['skipped']) - SHOWN_MAX:,} more; --json names all")
    if dry_run:
        console.say("nothing is changed: this was a dry run")
