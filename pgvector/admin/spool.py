"""spool: what was set aside and what waits, seen and settled by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..errors import BadArgument
from ..mirror.home import Home
from ..model import Counters, Event
from ..outbox.dead_letters import DeadLetter, DeadLetters
from ..outbox.inspection import Process, processes
from ..session.themes import aliased, allowed
from ..settings import Settings, load
from ..text.sanitize import safe_line
from ..text.theme_names import normalise, reserved
from .console import Console, age, counted, json_default, local, rows_table, size
from .filing import Filing

EVENT_COLUMNS = ("Id", "Kind", "Theme", "Set aside", "Size", "Reason")
SPOOL_COLUMNS = ("Spool", "Process", "Waiting", "Size", "Oldest")
ID_CHARS_MIN = 12
CELL_CHARS_MAX = 60
REASON_CHARS_MAX = 240
NOT_ALLOWED = "the theme is not in allowed_themes; extend it, or give --theme"
DAMAGED = "damaged"


def show_all(home: Path, console: Console) -> int:
    """List the events that were set aside and the spools, without a word of what users said."""
    here = _home(home)
    events = sorted(map(_summary, DeadLetters(here.state)), key=lambda row: row["set_aside"])
    spools = processes(here.spool)
    console.data({"aside": events, "spools": [_spool(process) for process in spools]})
    if events:
        chars = _telling_chars([row["id"] for row in events])
        console.show(rows_table(EVENT_COLUMNS, [_cells(row, chars) for row in events], numbers=("Size",)))
    else:
        console.show("no event was set aside")
    if spools:
        console.show("", rows_table(SPOOL_COLUMNS, [_spool_cells(one) for one in spools], numbers=SPOOL_COLUMNS[2:4]))
    else:
        console.show("no process has a spool")
    if events:
        console.say("then: hermes-pgvector spool show ID, retry ID or drop ID")
    return 0


def show(home: Path, console: Console, *, name: str) -> int:
    """Print one event whole; what a terminal would not print as it is stands there as an escape."""
    item = DeadLetters(_home(home).state).find(name)
    document = {**_summary(item), "event": _whole(item)}
    console.data(document)
    console.show(_printable(json.dumps(document, indent=2, ensure_ascii=False, default=json_default)))
    return 0


def retry(home: Path, console: Console, *, name: str, theme: str, wait_s: float) -> int:
    """File one event, or all when `name` is empty, once more and store it; 1 unless all of it was stored.

    What is filed and not stored is set aside again, or waits in a spool. An event that was stored is not stored twice.
    """
    settings, here = load(home), _home(home)
    letters = DeadLetters(here.state)
    with letters.locked():
        chosen = [letters.find(name).id] if name else _in_order(letters)
        with Filing(settings, here) as filing, console.busy("storing"):
            filed, refused = _file(filing, letters, settings, chosen, theme)
            problem = filing.store(wait_s) if filed else ""
        refused |= {letter.id: letter.reason for letter in _still(letters, filed)}
    settled = [] if problem else [event_id for event_id in filed if event_id not in refused]
    waiting = [event_id for event_id in filed if event_id not in refused] if problem else []
    console.data({"settled": settled, "waiting": waiting, "refused": refused, "problem": problem})
    console.show(f"{counted(len(settled), 'event')} settled, {len(refused):,} still set aside")
    if waiting:
        console.say(f"hermes-pgvector: {problem}; {counted(len(waiting), 'event')} may wait in the spool: the next")
        console.say("process of this home stores them, or: hermes-pgvector spool flush")
    for event_id, reason in refused.items():
        console.say(f"set aside: {event_id}: {safe_line(reason, REASON_CHARS_MAX)}")
    return 1 if problem or refused else 0


def _file(
    filing: Filing, letters: DeadLetters, settings: Settings, chosen: list[str], theme: str
) -> tuple[list[str], dict[str, str]]:
    """Put events into the spool: the ids of those that are in it, and for each of the others why it is not."""
    filed: list[str] = []
    refused: dict[str, str] = {}
    for item in _still(letters, chosen):
        event = _under(theme, item.event, settings)
        reason = _refusal(event, settings)
        if event is None or reason:
            refused[item.id] = reason
        elif not filing.file(event):
            refused[item.id] = "the spool is full, or cannot be written"
        else:
            # Not before it is durable elsewhere, and not after it may have become a dead letter again.
            letters.forget(item.id)
            filed.append(event.id)
    return filed, refused


def drop(home: Path, console: Console, *, name: str, sure: bool) -> int:
    """Delete one event that was set aside, or all when `name` is empty. Raises BadArgument when that is not `sure`."""
    letters = DeadLetters(_home(home).state)
    if not name and not sure:
        raise BadArgument(f"this deletes {counted(len(letters.ids()), 'event')} for good; say --yes to do it")
    with letters.locked():
        chosen = [letters.find(name).id] if name else letters.ids()
        dropped = [event_id for event_id in chosen if letters.forget(event_id)]
    console.data({"dropped": dropped})
    console.show(f"dropped {counted(len(dropped), 'event')}")
    return 0


def flush(home: Path, console: Console, *, wait_s: float) -> int:
    """Store what dead processes left, for about `wait_s` seconds; 1 when some of it is still there."""
    settings, here = load(home), _home(home)
    problem, counts = "", Counters()
    with console.busy("storing"):
        if _waiting(here, alive=False):
            with Filing(settings, here) as filing:
                problem = filing.store(wait_s)
                counts = filing.counters
        left, living = _waiting(here, alive=False), _waiting(here, alive=True)
    told = {"stored": counts.applied, "already_there": counts.already_there, "set_aside": counts.set_aside}
    console.data({**told, "left": left, "living": living, "problem": problem})
    console.show(
        f"stored {counted(counts.applied, 'event')} of dead processes; {counts.already_there:,} were there already"
    )
    if counts.set_aside:
        console.say(f"set aside: {counted(counts.set_aside, 'event')}; see: hermes-pgvector spool list")
    if living:
        console.say(f"{counted(living, 'event')} wait in spools of running processes, which store them themselves")
    if problem or left:
        console.say(
            f"hermes-pgvector: {problem or 'some could not be read, or came meanwhile'}; {counted(left, 'event')} left"
        )
    return 1 if problem or left else 0


def _waiting(here: Home, *, alive: bool) -> int:
    return sum(process.waiting.events for process in processes(here.spool) if process.alive is alive)


def _home(home: Path) -> Home:
    return Home(home, load(home).spool_dir)


def _in_order(letters: DeadLetters) -> list[str]:
    """The ids of all events, oldest event first: a change must not overtake what it changes."""
    found = ((letter.event.at if letter.event else letter.at, letter.id) for letter in letters)
    return [name for _, name in sorted(found)]


def _still(letters: DeadLetters, names: list[str]) -> Iterator[DeadLetter]:
    """The dead letters that exist now among these ids."""
    return (letter for name in names if (letter := letters.read(name)) is not None)


def _under(theme: str, event: Event | None, settings: Settings) -> Event | None:
    if not theme or event is None:
        return event
    chosen = aliased(normalise(theme), settings.theme_aliases)
    if reserved(chosen):
        raise BadArgument(f"theme {chosen[:CELL_CHARS_MAX]!r} is reserved for one person or room; choose another")
    return replace(event, theme=chosen)


def _refusal(event: Event | None, settings: Settings) -> str:
    if event is None:
        return "it is damaged and cannot be filed; look at it with `show`, then `drop` it"
    return "" if allowed(event.theme, settings.allowed_themes) else NOT_ALLOWED


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


def _telling_chars(ids: Sequence[str]) -> int:
    """How many characters tell one id from every other: whole ids leave no room on a narrow terminal."""
    chars = ID_CHARS_MIN
    while len({name[:chars] for name in ids}) < len(ids):
        chars += 1
    return chars


def _cells(row: dict[str, Any], id_chars: int) -> tuple[str, ...]:
    return (
        row["id"][:id_chars],
        row["kind"],
        safe_line(row["theme"] or "", CELL_CHARS_MAX),
        local(row["set_aside"]),
        size(row["bytes"]),
        safe_line(row["reason"], REASON_CHARS_MAX),
    )


def _spool(process: Process) -> dict[str, Any]:
    return {
        "spool": process.folder.name,
        "alive": process.alive,
        "pid": process.pid,
        "events": process.waiting.events,
        "bytes": process.waiting.bytes,
        "oldest": process.waiting.oldest,
    }


def _spool_cells(process: Process) -> tuple[str, ...]:
    pid = f" {process.pid}" if process.pid else ""
    waiting = process.waiting
    return (
        process.folder.name[:12],
        f"{'alive' if process.alive else 'dead'}{pid}",
        f"{waiting.events:,}",
        size(waiting.bytes),
        age(waiting.oldest) if waiting.oldest else "",
    )


def _whole(item: DeadLetter) -> Any:
    return asdict(item.event) if item.event else item.raw


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) != 0x7F else "\\u007f"
