"""What is watched while a simulated fleet runs: connections, waits of the server, outboxes, the processor."""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from server_usage import BENCH

from hermes_memory_pgvector.outbox import inspection

EVERY_S, OUTBOXES_EVERY_S = 0.25, 2.0
DISK_FREE_BYTES_MIN = 1 << 30
_ACTIVITY = r"""
select state = 'active', coalesce(wait_event_type || ' ' || wait_event, 'processor'),
  case when wait_event_type = 'Lock' then left(regexp_replace(query, '\s+', ' ', 'g'), 80) else '' end, count(*)
from pg_stat_activity where backend_type = 'client backend' and application_name <> %s group by 1, 2, 3"""


class Queue(NamedTuple):
    """What waits in the outboxes of all hosts."""

    events: int
    bytes: int


@dataclass
class Seen:
    """Samples: connections, what active ones waited for, the statements that waited for locks, and outboxes."""

    connections: list[int] = field(default_factory=list)
    waits: Counter[str] = field(default_factory=Counter)
    locked: Counter[str] = field(default_factory=Counter)
    queues: list[Queue] = field(default_factory=list)
    unreachable_s: float = 0.0

    def figures(self) -> dict[str, Any]:
        return {
            "connections_p50": statistics.median(self.connections or [0]),
            "connections_max": max(self.connections, default=0),
            "queue_events_max": max((queue.events for queue in self.queues), default=0),
            "queue_kb_max": max((queue.bytes for queue in self.queues), default=0) / 1024,
            "unreachable_s": self.unreachable_s,
            "waited_for_locks": dict((+self.locked).most_common(5)),
            "waits": dict(self.waits.most_common()),
        }


class Watcher:
    """Samples in a thread of its own while the block runs. `full` is set when the disk is nearly full."""

    def __init__(self, dsn: str, homes: Sequence[Path]) -> None:
        self._dsn, self._homes = dsn, homes
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._watch, self._watch_outboxes)]
        self.seen, self.full = Seen(), False

    def __enter__(self) -> Watcher:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _watch(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                with psycopg.connect(self._dsn, autocommit=True, application_name=BENCH) as connection:
                    while not self._ended.wait(EVERY_S):
                        self._sample(connection)
                        began = time.monotonic()
            except psycopg.OperationalError:
                self._ended.wait(EVERY_S)
                self.seen.unreachable_s += time.monotonic() - began

    def _sample(self, connection: psycopg.Connection) -> None:
        rows = connection.execute(_ACTIVITY, [BENCH]).fetchall()
        self.seen.connections.append(sum(count for *_, count in rows))
        for active, event, statement, count in rows:
            if active:
                self.seen.waits[event] += count
                self.seen.locked[statement] += count if statement else 0

    def _watch_outboxes(self) -> None:
        while not self._ended.wait(OUTBOXES_EVERY_S):
            self.seen.queues.append(waiting(self._homes))
            self.full = self.full or shutil.disk_usage(self._homes[0]).free < DISK_FREE_BYTES_MIN


def waiting(homes: Sequence[Path]) -> Queue:
    """What waits in the outboxes of these homes."""
    spools = [spool for home in homes for spool in inspection.processes(home / "pgvector" / "spool")]
    total = inspection.total(spool.waiting for spool in spools)
    return Queue(total.events, total.bytes)


def machine_busy_s() -> float:
    """Processor seconds that the machine has been busy so far, with anything."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def memory_mb(process: int) -> tuple[float, float]:
    """Resident memory of a process in MB, and the part of it that no other process shares."""
    found = dict.fromkeys(("Rss", "Private_Clean", "Private_Dirty"), 0.0)
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split()[:2]
        if name.rstrip(":") in found:
            found[name.rstrip(":")] = int(value) / 1024
    return found["Rss"], found["Private_Clean"] + found["Private_Dirty"]


def folder_mb(folder: Path) -> float:
    """Size of the files in a folder in MB."""
    sizes = (Path(place, name).stat().st_size for place, _, names in os.walk(folder) for name in names)
    return sum(sizes) / (1 << 20)
