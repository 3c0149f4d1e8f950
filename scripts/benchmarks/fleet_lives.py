"""Hosts of a simulated fleet that come and go: when each starts, how it ends, and that it comes back."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fleet_host import Plan
from server_usage import process_cpu_s
from servers import ServerProcess

HOSTS_A_THEME, BURST_TURNS = 5, 3
# Of the simulated clock, in hours: all hosts begin within the first time; lives and pauses are means.
START_H, LIFE_H, PAUSE_H, BURST_EVERY_H = 0.2, 1.0, 0.15, 0.2
POLL_S, END_S_MAX = 0.1, 20.0


@dataclass(frozen=True)
class Size:
    """How large a run is.

    `speed` is how many times faster the simulated clock goes than the real one, `pooled` the number of connections
    that PgBouncer shares among the hosts; 0 for none.
    """

    hosts: int
    hours: float
    speed: float
    turns_per_h: float
    connections: int
    pooled: int
    embedder_ms: tuple[float, float]
    idle_s: float
    limit_s: float
    seed: int

    def real_s(self, hours: float) -> float:
        return hours * 3600 / self.speed


@dataclass
class Host:
    """A host: its folders, its life now, and when it comes or goes next. `ended` has the end of each life."""

    name: str
    home: Path
    settings: dict[str, str]
    next_at: float
    pid: int = 0
    life: int = 0
    leaving: bool = False
    killed: bool = False
    ended: dict[int, float] = field(default_factory=dict)

    @property
    def record(self) -> Path:
        return self.home.with_name(f"{self.home.name}.record")


class Fleet:
    """Starts hosts and ends them, half of them by SIGKILL, and has them come back with the same home."""

    def __init__(self, size: Size, nursery: ServerProcess, hosts: list[Host], began: float) -> None:
        self._size, self._nursery, self.hosts = size, nursery, hosts
        self._began, self.until = began, began + size.real_s(size.hours)
        self._chance = random.Random(size.seed)
        self.cpu_s = 0.0
        self.ends: Counter[str] = Counter()
        for host in hosts:
            host.next_at = began + self._chance.uniform(0, size.real_s(START_H))

    def step(self) -> None:
        """Start and end those whose time has come."""
        self._note_ended()
        for host in self.hosts:
            if time.monotonic() < host.next_at or host.leaving:
                continue
            if host.pid:
                self._end(host, signal.SIGKILL if self._chance.random() < 0.5 else signal.SIGTERM)
            else:
                self._start(host)

    def start_all(self) -> None:
        """Start those that are away, once all that are leaving have left."""
        while any(host.leaving for host in self.hosts):
            self._note_ended()
            time.sleep(POLL_S)
        for host in self.hosts:
            if not host.pid:
                self._start(host)

    def end_all(self) -> None:
        """End all cleanly; those that do not end in time are killed, and counted."""
        until = time.monotonic() + END_S_MAX
        for host in self.hosts:
            if host.pid and not host.leaving:
                self._end(host, signal.SIGTERM)
        while any(host.pid for host in self.hosts):
            self._note_ended()
            if time.monotonic() > until:
                for host in self.hosts:
                    if host.pid and not host.killed:
                        self._end(host, signal.SIGKILL)
                        self.ends["not in time"] += 1
            time.sleep(POLL_S)

    def ended(self, key: str) -> float:
        """When the life of a host ended in which it took this turn."""
        name, life, _ = key.split("-")
        return self.hosts[int(name)].ended[int(life)]

    def running_cpu_s(self) -> float:
        """CPU seconds of the lives that go on."""
        return sum(process_cpu_s(host.pid) for host in self.hosts if host.pid)

    def _start(self, host: Host) -> None:
        size = self._size
        host.life += 1
        plan = Plan(
            name=host.name, life=host.life, home=str(host.home), record=str(host.record),
            theme=f"team-{int(host.name) // HOSTS_A_THEME}", settings=host.settings,
            turns_per_s=size.turns_per_h * size.speed / 3600, began=self._began, until=self.until,
            burst_every_s=size.real_s(BURST_EVERY_H), burst_turns=BURST_TURNS,
        )  # fmt: skip
        host.pid = int(self._nursery.tell(json.dumps(["start", asdict(plan)])))
        host.next_at = time.monotonic() + self._chance.expovariate(1 / size.real_s(LIFE_H))

    def _end(self, host: Host, how: signal.Signals) -> None:
        host.leaving, host.killed = True, how == signal.SIGKILL
        os.kill(host.pid, how)

    def _note_ended(self) -> None:
        by_pid = {host.pid: host for host in self.hosts if host.pid}
        for pid, code, cpu_s in json.loads(self._nursery.tell('["ended"]')):
            host = by_pid[pid]
            expected = code == (-signal.SIGKILL if host.killed else 0)
            self.ends["by SIGKILL" if host.killed else "cleanly" if expected else f"with {code}"] += 1
            self.cpu_s += cpu_s
            host.ended[host.life] = time.time()
            host.pid, host.leaving, host.killed = 0, False, False
            host.next_at = time.monotonic() + self._chance.expovariate(1 / self._size.real_s(PAUSE_H))
