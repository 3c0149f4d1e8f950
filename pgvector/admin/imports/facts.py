"""import --from hermes-memory: facts, scopes and history of that package."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...files import expanded
from ...model import FactWritten
from ...store.archive import facts
from ...store.archive.facts import ImportedFact
from ...store.connection.database import Connection
from ...store.erasure import marks
from ...store.person_links import shared_place
from ...text.sanitize import safe_line
from ..console import Console, counted
from ..database import connection
from . import hermes_memory

SHOWN_MAX = 20
REASON_CHARS_MAX = 160


def bring(home: Path, console: Console, args: argparse.Namespace, named: str) -> int:
    """Import a memory.db into a theme. Returns 0, or 1 when facts were skipped. Raises BadArgument, or Refused."""
    path = expanded(args.path)
    with connection(home) as writing, writing.transaction():
        (theme, _), _ = shared_place(writing, named)
        with console.busy("reading"):
            found = hermes_memory.read(path)
            kept = _not_erased(writing, theme, found.facts)
            merged = facts.merged(writing, theme, kept)
            if not args.dry_run:
                facts.add(writing, theme, merged, found.scopes, origin="hermes-memory", account=named)
    result = {
        "facts": len(found.facts), "new": len(merged.fresh), "known": len(merged.repeated),
        "statuses": dict(Counter(fact.status for fact in merged.fresh)),
        "erased": len(found.facts) - len(kept), "superseded_here": len(merged.superseded),
        "scopes": len(found.scopes), "skipped": dict(found.skipped),
    }  # fmt: skip
    console.data({"source": args.source, "path": str(path), "theme": theme, "dry_run": args.dry_run, **result})
    _summarise(console, result, theme, dry_run=args.dry_run)
    return 1 if result["skipped"] else 0


def _not_erased(connection: Connection, theme: str, found: Sequence[ImportedFact]) -> list[ImportedFact]:
    """The facts that were not erased here after they were written."""
    events = [
        FactWritten(
            theme=theme, at=fact.written_at, session_id=fact.session_id, kind=fact.kind, target=fact.target,
            content=fact.content,
        )
        for fact in found
    ]  # fmt: skip
    kept = marks.remaining(connection, events)
    return [fact for fact, rest in zip(found, kept, strict=True) if rest is not None]


def _summarise(console: Console, result: Mapping[str, Any], theme: str, *, dry_run: bool) -> None:
    statuses = ", ".join(f"{number:,} {status}" for status, number in sorted(result["statuses"].items()))
    what = "would be new" if dry_run else "are new"
    new = f"{result['new']:,} {what} in theme {safe_line(theme, 60)}{f' ({statuses})' if statuses else ''}"
    console.say(f"found {counted(result['facts'], 'fact')} in {counted(result['scopes'], 'scope')}: {new}")
    if result["known"]:
        console.say(f"{counted(result['known'], 'fact')} of them the theme has already")
    if result["erased"]:
        console.say(f"{counted(result['erased'], 'fact')} left out: erased here for good")
    if result["superseded_here"]:
        console.say(f"{counted(result['superseded_here'], 'fact')} of the theme are older and go into the history")
    for name, reason in list(result["skipped"].items())[:SHOWN_MAX]:
        console.say(f"hermes-pgvector: fact {safe_line(name, 60)} is skipped: {safe_line(reason, REASON_CHARS_MAX)}")
    if len(result["skipped"]) > SHOWN_MAX:
        console.say(f"hermes-pgvector: and {len(result['skipped']) - SHOWN_MAX:,} more; --json names all")
    if dry_run:
        console.say("nothing is changed: this was a dry run")
