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
    heartbeats = [process.heartbeat for process in living if process.heartbeat]
    oldest = total(process.waiting for process in living).oldest
    return {
        "processes": [_process(process, stuck_after_s) for process in living],
        "all_processes": {
            "counters": _counters(summed(one.counters for one in heartbeats)),
            "healed": sum(one.healed for one in heartbeats),
            "oldest_pending_s": oldest and _seconds(oldest),
            "last_success": max((one.last_success for one in heartbeats if one.last_success), default=None),
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
    adopted = " of a dead process" if process.heartbeat is None and process.new_owner else ""
    return f"{name(process)} stores nothing{since}, though {counted(process.pending, 'event')}{adopted} wait"


def failing_line(process: Process) -> str:
    """What a process says is wrong."""
    heartbeat = process.heartbeat
    if heartbeat is None:
        return name(process)
    since = f" (it began {age(heartbeat.failing_since)})" if heartbeat.failing_since else ""
    return f"{name(process)}: {safe_line(heartbeat.problem, PROBLEM_CHARS_MAX)}{since}"


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
    heartbeat = process.heartbeat
    oldest = age(process.waiting.oldest) if process.waiting.oldest else ""
    if heartbeat is None:
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
    counts = heartbeat.counters
    numbers = (counts.offered, counts.refused, counts.applied, counts.set_aside, counts.pending, heartbeat.healed)
    success = age(heartbeat.last_success) if heartbeat.last_success else "never"
    return (
        str(heartbeat.pid), process.condition(stuck_after_s), *(f"{number:,}" for number in numbers), oldest, success
    )  # fmt: skip


def _process(process: Process, stuck_after_s: float) -> dict[str, Any]:
    heartbeat, oldest = process.heartbeat, process.waiting.oldest
    return {
        "pid": process.pid,
        "adopted": heartbeat is None and process.new_owner is not None,
        "spool": process.folder.name,
        "state": process.condition(stuck_after_s),
        "started": heartbeat and heartbeat.started,
        "told": heartbeat and heartbeat.at,
        "last_success": heartbeat and heartbeat.last_success,
        "failing_since": heartbeat and heartbeat.failing_since,
        "problem": heartbeat and heartbeat.problem,
        "still_since": process.still_since,
        "counters": heartbeat and _counters(heartbeat.counters),
        "healed": heartbeat and heartbeat.healed,
        "waiting": {"events": process.waiting.events, "bytes": process.waiting.bytes, "oldest": oldest},
        "oldest_pending_s": oldest and _seconds(oldest),
    }


def _counters(counters: Counters) -> dict[str, Any]:
    return {**asdict(counters), "balanced": counters.balanced}


def _seconds(at: datetime) -> float:
    return round(max(0.0, (datetime.now(at.tzinfo) - at).total_seconds()), 1)
