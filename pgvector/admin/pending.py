"""pending: list, approve and reject the writes of agents that wait for a person's approval."""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path

from ..errors import BadArgument, PgvectorError, explained
from ..mirror.home import Home
from ..outbox.pending_writes import PendingWrite, PendingWrites, document
from ..settings import load
from ..text.sanitize import safe_line, visible
from ..tools import toolset
from .console import Cell, Console, counted, local_time, rows_table
from .database import running

CELL_CHARS_MAX = 40
PREVIEW_CHARS_MAX = 200
STORE_S_MAX = 30.0


def show_all(home: Path, console: Console, args: argparse.Namespace) -> int:  # noqa: ARG001
    """List the writes that wait, the oldest first. Returns 0."""
    writes = waiting(home).all()
    expiry = timedelta(days=load(home).pending_days)
    console.data({"pending": [{**document(write), "expires": write.at + expiry} for write in writes]})
    if writes:
        console.show(rows_table([_row(write, expiry) for write in writes]))
        console.say("next: hermes-pgvector pending approve ID or reject ID; --all for all of them")
    else:
        console.show("no write waits for approval")
    return 0


def approve(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Show writes, ask, and make them in their order. Returns 1 unless all are made and stored."""
    settings, store = load(home), waiting(home)
    made: list[str] = []
    failed: dict[str, str] = {}
    problem = ""
    with store.locked():
        writes = _chosen(store, args)
        if not _agreed(console, writes, "approve", args):
            return 1
        with running(settings, home) as runtime, console.busy("storing"):
            for write in writes:
                try:
                    toolset.approve(runtime, write)
                    store.delete(write.id)
                    made.append(write.id)
                except PgvectorError as error:
                    failed[write.id] = explained(error)
            if made and not runtime.writer.flush(STORE_S_MAX):
                problem = runtime.writer.health.problem or f"{STORE_S_MAX:g} s were not enough"
    console.data({"approved": made, "failed": failed, "problem": problem})
    console.show(f"approved {counted(len(made), 'write')}")
    for name, reason in failed.items():
        console.say(f"hermes-pgvector: {name} still waits: {safe_line(reason, PREVIEW_CHARS_MAX)}")
    if problem:
        console.say(f"hermes-pgvector: they are in the outbox, and stored later: {problem}")
    return 1 if failed or problem else 0


def reject(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Show writes, ask, and delete them. Returns 0, or 1 when the answer is no."""
    store = waiting(home)
    with store.locked():
        writes = _chosen(store, args)
        if not _agreed(console, writes, "reject", args):
            return 1
        for write in writes:
            store.delete(write.id)
    console.data({"rejected": [write.id for write in writes]})
    console.show(f"rejected {counted(len(writes), 'write')}")
    return 0


def waiting(home: Path) -> PendingWrites:
    """The waiting writes of a home. Raises SettingsError."""
    return PendingWrites(Home(home).state, load(home))


def _chosen(store: PendingWrites, args: argparse.Namespace) -> list[PendingWrite]:
    if bool(args.ids) == args.all:
        raise BadArgument("give the ids of writes, or --all for all of them; see: hermes-pgvector pending list")
    return store.all() if args.all else list({write.id: write for write in map(store.find, args.ids)}.values())


def _agreed(console: Console, writes: list[PendingWrite], what: str, args: argparse.Namespace) -> bool:
    """Whether a person agrees, who has seen each write whole; without writes there is nothing to ask."""
    if args.yes or not writes:
        return True
    console.check_consent(args, "add --yes, after a look at `hermes-pgvector pending list`")
    for write in writes:
        heading = f"{write.id}  {local_time(write.at)}  theme {safe_line(write.theme, CELL_CHARS_MAX)}"
        console.say(heading, f"{visible(write.preview)}\n")
    return console.agreed(args, f"{what} {counted(len(writes), 'write')}?")


def _row(write: PendingWrite, expiry: timedelta) -> dict[str, Cell]:
    return {
        "Id": write.id,
        "Since": local_time(write.at),
        "Expires": local_time(write.at + expiry),
        "Theme": safe_line(write.theme, CELL_CHARS_MAX),
        "Write": safe_line(write.preview, PREVIEW_CHARS_MAX),
    }
