"""From parsed arguments to the operators' jobs, which are imported when they run. Each returns an exit code."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..text import times
from ..version import __version__

if TYPE_CHECKING:
    from .console import Console


def install(args: argparse.Namespace, home: Path, console: Console) -> int:
    """Link the package into the home."""
    from . import link

    return link.install(home, console, remove=args.remove)


def setup(args: argparse.Namespace, home: Path, console: Console) -> int:
    """Choose, try, save and activate."""
    from . import setup as dialogue

    given = dialogue.Given(
        embedded=args.embedded, dsn=args.dsn, embed_url=args.embed_url, embed_model=args.embed_model, yes=args.yes
    )
    return dialogue.setup(home, console, given)


def migrate(args: argparse.Namespace, home: Path, console: Console) -> int:
    """Create or upgrade the tables."""
    from . import migration

    return migration.migrate(home, console, dsn=args.dsn, role=args.runtime_role, dimensions=args.dimensions)


def status(args: argparse.Namespace, home: Path, console: Console) -> int:
    """Show what there is and what waits."""
    from . import report

    return report.status(home, console, themes_max=args.themes)


def search(args: argparse.Namespace, home: Path, console: Console) -> int:
    """Search as an agent would."""
    from . import search as searching

    question = searching.Question(
        query=args.query,
        top_k=args.top_k,
        theme=args.theme,
        scope=args.scope,
        session=args.session,
        kind=args.kind,
        target=args.target,
        role=args.role or "",
        since=times.since(args.since, "--since", zone=None),
        until=times.until(args.until, "--until", zone=None),
        context=args.context,
    )
    return searching.search(home, console, question, explain=args.explain)


def doctor(args: argparse.Namespace, home: Path, console: Console) -> int:  # noqa: ARG001
    """Check everything."""
    from . import doctor as checking

    return checking.doctor(home, console)


def server(args: argparse.Namespace, home: Path, console: Console) -> int:
    """The embedded Postgres by hand."""
    from . import server as embedded

    if args.action == "stop":
        return embedded.stop(home, console, mode=args.mode)
    return embedded.start(home, console) if args.action == "start" else embedded.status(home, console)


def spool(args: argparse.Namespace, home: Path, console: Console) -> int:
    """What was set aside, and what waits."""
    from . import spool as spools

    match args.action:
        case "list":
            return spools.show_all(home, console)
        case "show":
            return spools.show(home, console, name=args.id)
        case "retry":
            return spools.retry(home, console, name=args.id, theme=args.theme, wait_s=args.wait)
        case "drop":
            return spools.drop(home, console, name=args.id, sure=args.yes)
    return spools.flush(home, console, wait_s=args.wait)


def backfill(args: argparse.Namespace, home: Path, console: Console) -> int:
    """Embed what has no vector."""
    from . import backfill

    return backfill.backfill(home, console, batch=args.batch, limit=args.limit, wait_s=args.wait)


def history(args: argparse.Namespace, home: Path, console: Console) -> int:
    """What entries said before."""
    from . import history as past

    return past.history(home, console, theme=args.theme, target=args.target or "", limit=args.limit, since=args.since)


def undo(args: argparse.Namespace, home: Path, console: Console) -> int:
    """Bring an entry back."""
    from . import history as past

    return past.undo(home, console, number=args.id)


def tune(args: argparse.Namespace, home: Path, console: Console) -> int:
    """Graph indexes for the largest themes."""
    from . import tune

    return tune.tune(
        home, console, dsn=args.dsn, apply=args.apply, rows_min=args.rows_min, indexes_max=args.indexes_max
    )


def version(args: argparse.Namespace, home: Path, console: Console) -> int:  # noqa: ARG001
    """Show the version."""
    console.data({"version": __version__})
    console.show(f"hermes-pgvector {__version__}")
    return 0
