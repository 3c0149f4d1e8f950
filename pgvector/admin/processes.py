"""The processes that use the memory of a home, as `status` and `doctor` show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from ..model import Counters
from ..outbox.inspection import Backlog, Condition, Process, summed, total
from ..text.sanitize import safe_line
from .console import age, counted, rows_table, size

PROBLEM_CHARS_MAX = 240
COLUMNS = (
    "Process",
    "State",
    "Offered",
    "Refused",
    "Stored",
    "Dead letters",
    "Pending",
    "Backfilled",
    "Oldest",
    "Last success",
)


def in_condition(condition: Condition, found: Iterable[Process], stuck_after_s: float) -> list[Process]:
    """Those of the processes that are in this condition."""
    return [process for process in found if process.condition(stuck_after_s) == condition]


def document(found: list[Process], stuck_after_s: float) -> dict[str, Any]:
    """JSON values of the running processes, their totals, and what ended processes left."""
    alive = [process for process in found if process.alive]
    dead = [process for process in found if not process.alive]
    heartbeats = [process.heartbeat for process in alive if process.heartbeat]
    oldest = total(process.waiting for process in alive).oldest
    return {
        "processes": [_process(process, stuck_after_s) for process in alive],
        "all_processes": {
            "counters": _counters(summed(one.counters for one in heartbeats)),
            "healed": sum(one.healed for one in heartbeats),
            "oldest_pending_s": oldest and _age_s(oldest),
            "last_success": max((one.last_success for one in heartbeats if one.last_success), default=None),
            "stuck": len(in_condition("stuck", found, stuck_after_s)),
            "failing": len(in_condition("failing", found, stuck_after_s)),
        },
        "dead_processes": {"count": len(dead), "events": sum(process.waiting.events for process in dead)},
    }


def name(process: Process) -> str:
    """Its process id, else its spool folder."""
    return f"process {process.pid}" if process.pid else f"the owner of {process.folder}"


def stuck_line(process: Process) -> str:
    """What a stuck process does not store, and since when."""
    since = f", last progress {age(process.still_since)}" if process.still_since else ""
    orphaned = " of an ended process" if process.heartbeat is None and process.new_owner else ""
    return f"{name(process)} stores nothing{since}; {counted(process.pending, 'event')}{orphaned} pending"


def failing_line(process: Process) -> str:
    """The problem that a failing process reports, and since when."""
    heartbeat = process.heartbeat
    if heartbeat is None:
        return name(process)
    since = f" (began {age(heartbeat.failing_since)})" if heartbeat.failing_since else ""
    return f"{name(process)}: {safe_line(heartbeat.problem, PROBLEM_CHARS_MAX)}{since}"


def summary(found: list[Process]) -> str:
    """How many processes run, and how many ended and left a spool."""
    alive = len({process.pid or process.folder for process in found if process.alive})
    dead = sum(not process.alive for process in found)
    running = f"{counted(alive, 'process', 'processes')} running" if alive else "none running"
    return f"{running}; {dead:,} ended and left events" if dead else running


def waiting_line(waiting: Backlog) -> str:
    """The events in the spools of a home."""
    if not waiting.events:
        return "no events waiting"
    since = f", oldest {age(waiting.oldest)}" if waiting.oldest else ""
    owners = counted(waiting.processes, "process", "processes")
    return f"{counted(waiting.events, 'event')} waiting ({size(waiting.bytes)}) from {owners}{since}"


def table(found: list[Process], stuck_after_s: float) -> Table:
    """A row for each running process, with its counters."""
    rows = [_cells(process, stuck_after_s) for process in found if process.alive]
    return rows_table(COLUMNS, rows, numbers=COLUMNS[2:8])


def _cells(process: Process, stuck_after_s: float) -> tuple[str, ...]:
    heartbeat, success = process.heartbeat, ""
    numbers: tuple[int | str, ...] = ("", "", "", "", process.pending, "")
    if heartbeat is not None:
        counts = heartbeat.counters
        numbers = (counts.offered, counts.refused, counts.applied, counts.set_aside, counts.pending, heartbeat.healed)
        success = age(heartbeat.last_success) if heartbeat.last_success else "never"
    cells = (f"{number:,}" if isinstance(number, int) else number for number in numbers)
    oldest = age(process.waiting.oldest) if process.waiting.oldest else ""
    return (str(process.pid or "?"), process.condition(stuck_after_s), *cells, oldest, success)


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
        "oldest_pending_s": oldest and _age_s(oldest),
    }


def _counters(counters: Counters) -> dict[str, Any]:
    return {**asdict(counters), "balanced": counters.balanced}


def _age_s(at: datetime) -> float:
    return round(max(0.0, (datetime.now(UTC) - at).total_seconds()), 1)
