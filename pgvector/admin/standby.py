"""The standby that recalls are read from, as `status` and `doctor` show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..outbox.inspection import Process
from ..store.probe import StandbyFound
from .check import Check
from .console import counted

ADDRESS = "start it, or correct HERMES_PGVECTOR_RECALL_DSN, the address of a hot standby of the database"
STREAM = (
    "let it stream from the primary: see its log, and pg_stat_replication on the primary; or raise recall_lag_s_max"
)


def check(found: StandbyFound | None) -> Iterator[Check]:
    """Whether recalls can be read from the standby, where there is one."""
    if found is not None and found.problem:
        yield Check("standby", "warning", _state(found), STREAM if found.behind else ADDRESS)
    elif found is not None:
        yield Check("standby", "ok", _state(found))


def line(found: StandbyFound, running: Iterable[Process]) -> str:
    """The state of the standby, and which server has answered recalls of running processes."""
    counts = recalls(running)
    return f"{_state(found)}; {counted(counts['by_standby'], 'recall')} by it, {counts['by_primary']:,} by the primary"


def recalls(running: Iterable[Process]) -> dict[str, int]:
    """How many recalls of running processes each server has answered."""
    beats = [process.heartbeat for process in running if process.alive and process.heartbeat]
    return {
        "by_standby": sum(beat.recalls_by_standby for beat in beats),
        "by_primary": sum(beat.recalls_by_primary for beat in beats),
    }


def _state(found: StandbyFound) -> str:
    if found.problem:
        return f"{found.where} is not read from, recalls ask the primary: {found.problem}"
    return f"{found.where} is {found.lag_s or 0:.1f} s behind"
