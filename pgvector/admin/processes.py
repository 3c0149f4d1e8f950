"""The processes that use the memory of a home, as `status` and `doctor` show them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.filesize import decimal as size

from ..model import now
from ..outbox.heartbeat import Counters
from ..outbox.inspection import Backlog, Process, summed, total
from ..text.sanitize import safe_line
from .check import Check
from .console import Cell, age, counted, duration

PROBLEM_CHARS_MAX = 240
HEARTBEAT_KEYS = (
    "started", "last_success", "failing_since", "problem", "healed", "healed_per_s", "embedder_problem",
    "recalls_by_standby", "recalls_by_primary", "standby_problem",
)  # fmt: skip


def document(found: list[Process], stuck_after_s: float) -> dict[str, Any]:
    """JSON values of the running processes, their totals, and what ended processes left."""
    alive = [process for process in found if process.alive]
    dead = [process for process in found if not process.alive]
    heartbeats = [process.heartbeat for process in alive if process.heartbeat]
    conditions = Counter(process.condition(stuck_after_s) for process in found)
    return {
        "processes": [_process(process, stuck_after_s) for process in alive],
        "all_processes": {
            "counters": _counters(summed(one.counters for one in heartbeats)),
            "healed": sum(one.healed for one in heartbeats),
            "healed_per_s": round(rows_per_s(found), 1),
            "oldest_pending_s": _age_s(total(process.waiting for process in alive).oldest),
            "last_success": max((one.last_success for one in heartbeats if one.last_success), default=None),
            "stuck": conditions["stuck"],
            "failing": conditions["failing"],
        },
        "dead_processes": {"count": len(dead), "events": sum(process.waiting.events for process in dead)},
    }


def rows_per_s(found: list[Process]) -> float:
    """How many rows get their vectors in a second, by all running processes of the home."""
    return sum(one.heartbeat.healed_per_s for one in found if one.alive and one.heartbeat)


def backlog_line(rows: int, found: list[Process]) -> str:
    """The rows without a vector, and how long they will take, or why they wait."""
    if not rows:
        return "none"
    line = f"{counted(rows, 'row')}, found by words only"
    pace = rows_per_s(found)
    if pace:
        return f"{line}; {duration(rows / pace)} left, at {pace:.1f} rows a second"
    problem = embedder_problem(found)
    return f"{line}; they wait: {safe_line(problem, PROBLEM_CHARS_MAX)}" if problem else line


def embedder_problem(found: list[Process]) -> str:
    """Why rows of a running process wait for their vectors; empty when none do."""
    problems = [one.heartbeat.embedder_problem for one in found if one.alive and one.heartbeat]
    return next(filter(None, problems), "")


def troubled(found: list[Process], stuck_after_s: float) -> list[Check]:
    """A check of each stuck process, and then of each failing one."""
    stuck = [_stuck(process) for process in found if process.condition(stuck_after_s) == "stuck"]
    failing = [_failing(process) for process in found if process.condition(stuck_after_s) == "failing"]
    return stuck + failing


def _stuck(process: Process) -> Check:
    since = f", last progress {age(process.still_since)}" if process.still_since else ""
    orphaned = " of an ended process" if process.heartbeat is None and process.new_owner else ""
    line = f"{_name(process)} stores nothing{since}; {counted(process.pending, 'event')}{orphaned} pending"
    remedy = f"end {_name(process)}; its events are kept, and the next session stores them"
    return Check("writer", "problem", line, f"{remedy}, or: hermes-pgvector spool flush")


def _failing(process: Process) -> Check:
    began, problem = (process.heartbeat.failing_since, process.heartbeat.problem) if process.heartbeat else (None, "")
    since = f" (began {age(began)})" if began else ""
    line = f"{_name(process)}: {safe_line(problem, PROBLEM_CHARS_MAX)}{since}"
    return Check("writer", "warning", line, "fix the cause; until then the events wait in the spool")


def _name(process: Process) -> str:
    return f"process {process.pid}" if process.pid else f"the owner of {process.folder}"


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


def row(process: Process, stuck_after_s: float) -> dict[str, Cell]:
    """The cells of a running process in a table, with its counters; all but the last one are narrow."""
    heartbeat, oldest = process.heartbeat, age(process.waiting.oldest)
    counts = heartbeat.counters if heartbeat else None
    notes = [f"oldest event {oldest}"] if oldest else []
    if heartbeat and counts:
        notes.append(f"last success {age(heartbeat.last_success) or 'never'}")
        notes += [f"{heartbeat.healed:,} backfilled"] if heartbeat.healed else []
        notes += [counted(counts.set_aside, "dead letter")] if counts.set_aside else []
    return {
        "Process": str(process.pid or "?"),
        "State": process.condition(stuck_after_s),
        "Offered": counts.offered if counts else None,
        "Refused": counts.refused if counts else None,
        "Stored": counts.applied if counts else None,
        "Pending": counts.pending if counts else process.pending,
        "Notes": ", ".join(notes),
    }


def _process(process: Process, stuck_after_s: float) -> dict[str, Any]:
    heartbeat, waiting = process.heartbeat, process.waiting
    return {
        "pid": process.pid,
        "adopted": heartbeat is None and process.new_owner is not None,
        "spool": process.folder.name,
        "state": process.condition(stuck_after_s),
        "told": heartbeat and heartbeat.at,
        "still_since": process.still_since,
        "counters": heartbeat and _counters(heartbeat.counters),
        **{name: getattr(heartbeat, name, None) for name in HEARTBEAT_KEYS},
        "waiting": {"events": waiting.events, "bytes": waiting.bytes, "oldest": waiting.oldest},
        "oldest_pending_s": _age_s(waiting.oldest),
    }


def _counters(counters: Counters) -> dict[str, Any]:
    return {**asdict(counters), "balanced": counters.balanced}


def _age_s(at: datetime | None) -> float | None:
    return round(max(0.0, (now() - at).total_seconds()), 1) if at else None
