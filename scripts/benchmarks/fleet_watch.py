"""What is watched while a simulated fleet runs: connections, waits of the server, outboxes, the processor."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psycopg
from server_usage import BENCH

from hermes_memory_pgvector.outbox import inspection

EVERY_S, OUTBOXES_EVERY_S = 0.25, 2.0
DISK_FREE_BYTES_MIN = 1 << 30
_ACTIVITY = """
select state = 'active', coalesce(wait_event_type || ' ' || wait_event, 'processor'), count(*)
from pg_stat_activity where backend_type = 'client backend' and application_name <> %s group by 1, 2"""


class Queue(NamedTuple):
    """What waits in the outboxes of all hosts."""

    events: int
    bytes: int


@dataclass
class Seen:
    """Samples: connections over time, what active connections waited for, outboxes; and how busy the machine was."""

    connections: list[int] = field(default_factory=list)
    waits: Counter[str] = field(default_factory=Counter)
    queues: list[Queue] = field(default_factory=list)
    unreachable_s: float = 0.0


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
        self.seen.connections.append(sum(count for _, _, count in rows))
        self.seen.waits.update({event: count for active, event, count in rows if active})

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
