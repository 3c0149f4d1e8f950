"""spool: list, show, retry and delete dead letters, and store the events that ended processes left."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.filesize import decimal as size
from rich.table import Table

from ..errors import BadArgument, SettingsError
from ..mirror.home import Home
from ..outbox.dead_letters import DeadLetter, DeadLetters
from ..outbox.heartbeat import Counters
from ..outbox.inspection import Process, processes
from ..outbox.orphans import OrphanSpool
from ..outbox.spool import Spool
from ..session.themes import allowed, stored_name
from ..settings import Settings, load
from ..store.connection.dsn import unusable
from ..text.sanitize import safe_line
from ..text.theme_names import reserved
from .console import Cell, Console, age, counted, json_default, local_time, rows_table
from .database import running

ID_CHARS_MIN = 12
CELL_CHARS_MAX = 60
REASON_CHARS_MAX = 240
SHOWN_MAX = 50
RETRY_S = 0.5
NOT_ALLOWED = "the theme is not in allowed_themes; add it there, or give --theme"
DAMAGED = "damaged"
DAMAGED_FOR_GOOD = "it is damaged and cannot be stored; see it with `spool show`, delete it with `spool drop`"


def show_all(home: Path, console: Console, args: argparse.Namespace) -> int:  # noqa: ARG001
    """List the dead letters and the spools, without the texts of users. Returns 0."""
    here = Home(home, load(home))
    events = sorted(map(_summary, DeadLetters(here.state)), key=lambda event: event["set_aside"])
    spools = processes(here.spool)
    console.data({"aside": events, "spools": [_spool(process) for process in spools]})
    console.show(_events_table(events) if events else "no dead letters")
    if spools:
        console.show("", rows_table([_spool_row(process) for process in spools]))
    else:
        console.show("no spools")
    if events:
        console.say("next: hermes-pgvector spool show ID, retry ID or drop ID")
    return 0


def show(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print one dead letter with all its texts; control characters are printed as escapes. Returns 0."""
    item = DeadLetters(Home(home).state).find(args.id)
    document = {**_summary(item), "event": asdict(item.event) if item.event else item.raw}
    console.data(document)
    console.show(_printable(json.dumps(document, indent=2, ensure_ascii=False, default=json_default)))
    return 0


def retry(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Put dead letters into a spool again and store them. Returns 1 unless all are stored.

    An event that cannot be stored becomes a dead letter again, or waits in the spool. None is stored twice.
    """
    settings = load(home)
    here = Home(home, settings)
    letters = DeadLetters(here.state)
    theme = _theme(args.theme, settings)
    if reason := unusable(settings):
        raise SettingsError(reason)
    with letters.locked(), console.busy("storing"):
        chosen = _in_order(letters) if args.all else [letters.find(args.id).id]
        handed, filed, refused = _file(here, letters, settings, chosen, theme)
        problem = _store(settings, home, args.wait, handed)[0] if filed else ""
        folder = handed[0] if handed else None
        if not problem and any(one.folder == folder and one.waiting.events for one in processes(here.spool)):
            problem = "a running process has taken them over, and may not have stored them yet"
        refused |= {letter.id: letter.reason for letter in filter(None, map(letters.read, filed))}
    accepted = [event_id for event_id in filed if event_id not in refused]
    settled, waiting = ([], accepted) if problem else (accepted, [])
    console.data({"settled": settled, "waiting": waiting, "refused": refused, "problem": problem})
    console.show(f"{counted(len(settled), 'event')} stored, {counted(len(refused), 'dead letter')} left")
    if waiting:
        console.say(f"hermes-pgvector: {problem}")
        console.say(f"{counted(len(waiting), 'event')} may wait in the spool; to store: hermes-pgvector spool flush")
    for event_id, reason in refused.items():
        console.say(f"not stored: {event_id}: {safe_line(reason, REASON_CHARS_MAX)}")
    return 1 if problem or refused else 0


def _file(
    here: Home, letters: DeadLetters, settings: Settings, chosen: list[str], theme: str
) -> tuple[tuple[Path, int] | None, list[str], dict[str, str]]:
    """Put events into a spool that stays locked: a process of an earlier release may not be able to read them.

    Returns its folder with the descriptor of its lock, their ids, and the reasons why others are not in it.
    """
    filed: list[str] = []
    refused: dict[str, str] = {}
    # On disk only: an event that was on disk must not move to memory.
    with closing(
        Spool(here.spool, bytes_max=settings.spool_max_mb << 20, window_max=1, fsync=settings.spool_fsync)
    ) as spool:
        for item in filter(None, map(letters.read, chosen)):
            event = replace(item.event, theme=theme or item.event.theme) if item.event else None
            if event is None:
                refused[item.id] = DAMAGED_FOR_GOOD
            elif not allowed(event.theme, settings.allowed_themes):
                refused[item.id] = NOT_ALLOWED
            elif not spool.append(event):
                refused[item.id] = "the spool is full, or cannot be written"
            else:
                # After the event is durable in the spool, and before it may become a dead letter again.
                letters.delete(item.id)
                filed.append(event.id)
        return spool.hand_over(), filed, refused


def _store(
    settings: Settings, home: Path, wait_s: float, handed: tuple[Path, int] | None = None
) -> tuple[str, Counters]:
    """Store the events in orphaned spools, for about `wait_s` seconds. Returns why not all, or "", and the counters.

    `handed` is a spool that this process has locked.
    """
    deadline = time.monotonic() + wait_s
    done = False
    # A server that does not answer is to be noticed before the time is up.
    settings = settings.model_copy(update={"connect_timeout_s": min(settings.connect_timeout_s, wait_s / 2)})
    with running(settings, home) as runtime:
        if handed:
            runtime.writer.take_over(OrphanSpool(*handed))
        while not done and (left_s := deadline - time.monotonic()) > 0:
            # After a failure the writer waits longer and longer, but a new flush has it try again.
            done = runtime.writer.flush(min(RETRY_S, left_s), orphans=True)
    problem = runtime.writer.health.problem or f"{wait_s:g} s were not enough; run the command again to continue"
    return "" if done else problem, runtime.writer.counters


def drop(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Show dead letters, ask, and delete them. Returns 0, or 1 when the answer is no."""
    console.check_consent(args, "add --yes, after a look at `hermes-pgvector spool list`")
    letters = DeadLetters(Home(home).state)
    with letters.locked():
        chosen = letters.ids() if args.all else [letters.find(args.id).id]
        if chosen and not args.yes:
            shown = [_summary(letter) for letter in filter(None, map(letters.read, chosen[:SHOWN_MAX]))]
            if shown:
                console.show(_events_table(shown))
            if len(chosen) > len(shown):
                console.say(f"and {len(chosen) - len(shown):,} more; see: hermes-pgvector spool list")
            if not console.agreed(args, f"Delete {counted(len(chosen), 'event')} for good?"):
                return 1
        dropped = [event_id for event_id in chosen if letters.delete(event_id)]
    console.data({"dropped": dropped})
    console.show(f"deleted {counted(len(dropped), 'event')}")
    return 0


def flush(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Store the events of ended processes, for about `--wait` seconds. Returns 1 when some are left."""
    settings = load(home)
    here = Home(home, settings)
    problem, counts = "", Counters()
    with console.busy("storing"):
        if _waiting(here, alive=False):
            problem, counts = _store(settings, home, args.wait)
        left, living = _waiting(here, alive=False), _waiting(here, alive=True)
    stored = {"stored": counts.applied, "already_there": counts.already_there, "set_aside": counts.set_aside}
    console.data({**stored, "left": left, "living": living, "problem": problem})
    console.show(
        f"stored {counted(counts.applied, 'event')} of ended processes; {counts.already_there:,} were stored before"
    )
    if counts.set_aside:
        console.say(f"{counted(counts.set_aside, 'dead letter')} added; see: hermes-pgvector spool list")
    if living:
        console.say(f"{counted(living, 'event')} wait in spools of running processes, which store them themselves")
    if problem or left:
        why = problem or "some events are new or cannot be read"
        console.say(f"hermes-pgvector: {why}; {counted(left, 'event')} left")
    return 1 if problem or left else 0


def _waiting(here: Home, *, alive: bool) -> int:
    return sum(process.waiting.events for process in processes(here.spool) if process.alive is alive)


def _in_order(letters: DeadLetters) -> list[str]:
    """The ids of all dead letters in the order of their events: a removal must follow its add."""
    found = ((letter.event.at if letter.event else letter.at, letter.id) for letter in letters)
    return [name for _, name in sorted(found)]


def _theme(given: str, settings: Settings) -> str:
    """The theme to store events under; empty for that of each event. Raises BadArgument."""
    theme = stored_name(given, settings) if given else ""
    if reserved(theme):
        raise BadArgument(f"theme {theme[:CELL_CHARS_MAX]!r} is reserved for one person or room; give another")
    return theme


def _summary(item: DeadLetter) -> dict[str, Any]:
    event = item.event
    return {
        "id": item.id,
        "kind": type(event).__name__ if event else DAMAGED,
        "theme": event.theme if event else None,
        "at": event.at if event else None,
        "set_aside": item.at,
        "reason": item.reason,
        "bytes": item.size,
    }


def _unique_chars(ids: Sequence[str]) -> int:
    """The number of characters that makes every id unique; whole ids are too wide for a narrow terminal."""
    chars = ID_CHARS_MIN
    while len({name[:chars] for name in ids}) < len(ids):
        chars += 1
    return chars


def _events_table(events: Sequence[dict[str, Any]]) -> Table:
    chars = _unique_chars([event["id"] for event in events])
    return rows_table([_event_row(event, chars) for event in events])


def _event_row(event: dict[str, Any], id_chars: int) -> dict[str, Cell]:
    return {
        "Id": event["id"][:id_chars],
        "Kind": event["kind"],
        "Theme": safe_line(event["theme"] or "", CELL_CHARS_MAX),
        "Since": local_time(event["set_aside"]),
        "Size": size(event["bytes"]),
        "Reason": safe_line(event["reason"], REASON_CHARS_MAX),
    }


def _spool(process: Process) -> dict[str, Any]:
    return {
        "spool": process.folder.name,
        "alive": process.alive,
        "pid": process.pid,
        "events": process.waiting.events,
        "bytes": process.waiting.bytes,
        "oldest": process.waiting.oldest,
    }


def _spool_row(process: Process) -> dict[str, Cell]:
    waiting = process.waiting
    return {
        "Spool": process.folder.name[:ID_CHARS_MIN],
        "Process": f"{'running' if process.alive else 'ended'} {process.pid or ''}",
        "Waiting": waiting.events,
        "Size": size(waiting.bytes),
        "Oldest": age(waiting.oldest),
    }


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) != 0x7F else "\\u007f"
