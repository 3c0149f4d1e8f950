"""The processes of a home as `status` and `doctor` tell them: who lives, what became of the events, who is stuck."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.table import Table

from ..model import Counters
from ..outbox.inspection import Process, summed, total
from ..text.sanitize import safe_line
from .console import age, counted, rows_table

PROBLEM_CHARS_MAX = 240
COLUMNS = (
    "Process",
    "State",
    "Offered",
    "Refused",
    "Stored",
    "Set aside",
    "Pending",
    "Healed",
    "Oldest",
    "Last success",
)


def document(found: list[Process], stuck_after_s: float) -> dict[str, Any]:
    """The living processes, what waits of the dead ones, and the sum of what the living tell."""
    living = [process for process in found if process.alive]
    dead = [process for process in found if not process.alive]
    signs = [process.signs for process in living if process.signs]
    oldest = total(process.waiting for process in living).oldest
    return {
        "processes": [_process(process, stuck_after_s) for process in living],
        "all_processes": {
            "counters": _counters(summed(sign.counters for sign in signs)),
            "healed": sum(sign.healed for sign in signs),
            "oldest_pending_s": oldest and _seconds(oldest),
            "last_success": max((sign.last_success for sign in signs if sign.last_success), default=None),
            "stuck": len(stuck(found, stuck_after_s)),
            "failing": len(failing(found, stuck_after_s)),
        },
        "dead_processes": {"count": len(dead), "events": sum(process.waiting.events for process in dead)},
    }


def stuck(found: list[Process], stuck_after_s: float) -> list[Process]:
    """Those that live, and store nothing, and do not say why."""
    return [process for process in found if process.condition(stuck_after_s) == "stuck"]


def failing(found: list[Process], stuck_after_s: float) -> list[Process]:
    """Those that know what is wrong and go on trying."""
    return [process for process in found if process.condition(stuck_after_s) == "failing"]


def name(process: Process) -> str:
    """How to find it: by its process id, else by its spool."""
    return f"process {process.pid}" if process.pid else f"the owner of {process.folder}"


def stuck_line(process: Process) -> str:
    """What a stuck process does not do, and since when."""
    since = f", the last time {age(process.still_since)}" if process.still_since else ""
    adopted = " of a dead process" if process.signs is None and process.adopter else ""
    return f"{name(process)} stores nothing{since}, though {counted(process.pending, 'event')}{adopted} wait"


def failing_line(process: Process) -> str:
    """What a process says is wrong."""
    signs = process.signs
    if signs is None:
        return name(process)
    since = f" (it began {age(signs.failing_since)})" if signs.failing_since else ""
    return f"{name(process)}: {safe_line(signs.problem, PROBLEM_CHARS_MAX)}{since}"


def line(found: list[Process]) -> str:
    """All of them in one line."""
    living = len({process.pid or process.folder for process in found if process.alive})
    dead = sum(not process.alive for process in found)
    told = f"{counted(living, 'process', 'processes')} alive" if living else "none runs"
    return f"{told}, {dead:,} died and left a spool" if dead else told


def table(found: list[Process], stuck_after_s: float) -> Table:
    """The living ones, each with what became of its events."""
    living = [process for process in found if process.alive]
    return rows_table(COLUMNS, [_cells(process, stuck_after_s) for process in living], numbers=COLUMNS[2:8])


def _cells(process: Process, stuck_after_s: float) -> tuple[str, ...]:
    signs = process.signs
    oldest = age(process.waiting.oldest) if process.waiting.oldest else ""
    if signs is None:
        return (
            str(process.pid or "?"),
            process.condition(stuck_after_s),
            "",
            "",
            "",
            "",
            f"{process.pending:,}",
            "",
            oldest,
            "",
        )
    counts = signs.counters
    numbers = (counts.offered, counts.refused, counts.applied, counts.set_aside, counts.pending, signs.healed)
    success = age(signs.last_success) if signs.last_success else "never"
    return (
        str(signs.pid), process.condition(stuck_after_s), *(f"{number:,}" for number in numbers), oldest, success
    )  # fmt: skip


def _process(process: Process, stuck_after_s: float) -> dict[str, Any]:
    signs, oldest = process.signs, process.waiting.oldest
    return {
        "pid": process.pid,
        "adopted": signs is None and process.adopter is not None,
        "spool": process.folder.name,
        "state": process.condition(stuck_after_s),
        "started": signs and signs.started,
        "told": signs and signs.at,
        "last_success": signs and signs.last_success,
        "failing_since": signs and signs.failing_since,
        "problem": signs and signs.problem,
        "still_since": process.still_since,
        "counters": signs and _counters(signs.counters),
        "healed": signs and signs.healed,
        "waiting": {"events": process.waiting.events, "bytes": process.waiting.bytes, "oldest": oldest},
        "oldest_pending_s": oldest and _seconds(oldest),
    }


def _counters(counters: Counters) -> dict[str, Any]:
    return {**asdict(counters), "balanced": counters.balanced}


def _seconds(at: datetime) -> float:
    return round(max(0.0, (datetime.now(at.tzinfo) - at).total_seconds()), 1)
