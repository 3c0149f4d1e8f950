"""One run of a simulated fleet: its services, its hosts that come and go, the faults, and the figures."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from environment import DIMENSIONS
from fleet_host import Plan
from fleet_network import kind_of
from fleet_record import compare, lags, percentiles, read
from fleet_watch import Watcher, folder_mb, machine_busy_s, memory_mb, waiting
from psycopg.conninfo import make_conninfo
from server_usage import BENCH, process_cpu_s, server_cpu_ms
from servers import ServerProcess, controlled_process, throwaway_postgres

from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.embedded.cluster import AGENT, DATABASE
from hermes_memory_pgvector.store.embedded.server import EmbeddedServer
from hermes_memory_pgvector.store.schema.migrations import migrate

HERE = Path(__file__).resolve().parent
HOSTS_A_THEME, BURST_TURNS = 5, 3
# Of the simulated clock, in hours: all hosts begin within the first time; lives and pauses are means.
START_H, LIFE_H, PAUSE_H, BURST_EVERY_H, DOWN_H = 0.2, 1.0, 0.15, 0.5, 1 / 30
POLL_S, END_S_MAX = 0.1, 20.0
POOL_MAX, POOL_IDLE_S = (Settings.model_fields[name].default for name in ("pool_max", "pool_idle_s"))
Figures = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How large a run is. `speed` is how many times faster the simulated clock goes than the real one."""

    hosts: int
    hours: float
    speed: float
    turns_per_h: float
    connections: int
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

    def running_cpu_s(self) -> float:
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


class Services:
    """Postgres, the embedder, and the network between them and the hosts."""

    def __init__(self, server: EmbeddedServer, embedder: ServerProcess, network: ServerProcess) -> None:
        self.server, self.embedder, self.network = server, embedder, network
        self._cpu_s, self.restart_s = -server_cpu_ms(server.dsn) / 1000, 0.0

    def restart(self, down_s: float) -> None:
        self._cpu_s += server_cpu_ms(self.server.dsn) / 1000
        began = time.monotonic()
        self.server.stop(mode="fast")
        time.sleep(down_s)
        self.server.ensure_running()
        self.restart_s = time.monotonic() - began

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of each service so far."""
        postgres = self._cpu_s + server_cpu_ms(self.server.dsn) / 1000
        return {
            "postgres": postgres,
            "embedder": process_cpu_s(self.embedder.pid),
            "network": process_cpu_s(self.network.pid),
            "benchmark": time.process_time(),
        }


def run(size: Size) -> Figures:
    """Simulate a fleet and return its figures."""
    with _fleet(size) as (services, fleet):
        homes = [host.home for host in fleet.hosts]
        dsn = services.server.dsn
        busy_s, wal = machine_busy_s(), _wal_bytes(dsn)
        with Watcher(dsn, homes) as watcher:
            _let_live(size, services, fleet, watcher)
            traffic_s, cpu_s = (
                size.real_s(size.hours),
                {**services.cpu_s(), "hosts": fleet.cpu_s + fleet.running_cpu_s()},
            )
            machine_s, left = machine_busy_s() - busy_s, waiting(homes)
        wal_mb = (_wal_bytes(dsn) - wal) / (1 << 20)
        services.network.tell("calm")
        drained_s = _drain(size, fleet, homes)
        idle = _idle(size, fleet, dsn)
        memory = [memory_mb(host.pid) for host in fleet.hosts if host.pid]
        fleet.end_all()
        most_each = json.loads(services.network.tell("connections"))
        seen, records = watcher.seen, read({host.record: kind_of(int(host.name)) for host in fleet.hosts})
        recall_ms = [ms for each in records.recall_ms.values() for ms in each]
        turns = max(1, len(recall_ms))
        ends = {host.name: host.ended for host in fleet.hosts}
        beside, after = lags(records, lambda key: _end_of_life(ends, key), dsn)
        return {
            "hosts": size.hosts,
            "traffic_s": traffic_s,
            "turns_per_s": turns / traffic_s,
            **compare(records, {host.name: host.home for host in fleet.hosts}, dsn),
            "turns_refused": records.refused,
            "ends": dict(fleet.ends),
            "postgres_restart_s": services.restart_s,
            "connections_p50": statistics.median(seen.connections or [0]),
            "connections_max": max(seen.connections, default=0),
            "connections_limit": size.connections,
            "connections_per_host_max": max(most_each),
            "connections_idle": idle["connections"],
            "queue_events_max": max((queue.events for queue in seen.queues), default=0),
            "queue_kb_max": max((queue.bytes for queue in seen.queues), default=0) / 1024,
            "queue_events_left": left.events,
            "drained_s": drained_s,
            "rows_without_vector": idle["rows_without_vector"],
            **percentiles("lag", beside, "s", 50, 99),
            "lag_by_quarter_p50_s": [float(statistics.median(part)) for part in _quarters(beside)],
            **percentiles("lag_of_ended_host", after, "s", 50),
            "turns_of_ended_hosts": len(after),
            **percentiles("hook", records.hook_ms, "ms", 50, 99),
            **percentiles("hook_cpu", records.hook_cpu_ms, "ms", 50, 99),
            **percentiles("recall", recall_ms, "ms", 50, 99),
            "recall_by_network": {
                name: percentiles("at", each, "ms", 50, 99) for name, each in sorted(records.recall_ms.items())
            },
            **percentiles("tool", records.tool_ms, "ms", 50, 99),
            "recall_empty_share": records.empty / turns,
            "tool_degraded_share": records.tool_degraded / max(1, len(records.tool_ms)),
            "tools_failed": records.tool_failed,
            "host_cpu_ms_per_turn": 1000 * cpu_s["hosts"] / turns,
            "host_cpu_ms_per_idle_minute": idle["cpu_ms_per_minute"],
            "host_rss_mb": statistics.median(resident for resident, _ in memory),
            "host_private_mb": statistics.median(private for _, private in memory),
            "host_disk_mb": statistics.median(map(folder_mb, homes)),
            "postgres_cpu_ms_per_turn": 1000 * cpu_s["postgres"] / turns,
            "cores_used": {name: used / traffic_s for name, used in cpu_s.items()},
            "cores_used_by_all": machine_s / traffic_s,
            "wal_kb_per_turn": 1024 * wal_mb / turns,
            "wal_mb_per_s": wal_mb / traffic_s,
            "waits": dict(seen.waits.most_common(8)),
            "waits_all": seen.waits.total(),
        }  # fmt: skip


@contextmanager
def _fleet(size: Size) -> Iterator[tuple[Services, Fleet]]:
    with ExitStack() as ending:
        # Beside those of agents: the reserved ones, for the benchmark.
        options = {"max_connections": str(size.connections), "track_commit_timestamp": "on"}
        server = ending.enter_context(throwaway_postgres(**options))
        migrate(server.dsn, dimensions=DIMENSIONS, runtime_role=AGENT)
        folder = Path(server.paths.state).parent
        command = [sys.executable, "-P", HERE / "embedding_server.py", *map(str, size.embedder_ms), str(DIMENSIONS)]
        embedder = ending.enter_context(controlled_process(command, start_new_session=True))
        port = embedder.address.rpartition(":")[2]
        socket = next(server.paths.sockets.glob(".s.PGSQL.*[0-9]"))
        command = [sys.executable, HERE / "fleet_network.py", socket, port, str(size.hosts)]
        network = ending.enter_context(controlled_process(command, start_new_session=True))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
        with (folder / "hosts.log").open("wb") as log:
            nursery = controlled_process(
                [sys.executable, HERE / "fleet_host.py"], start_new_session=True, stderr=log, cwd=folder,
                env={**environment, "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip
            nursery_process = ending.enter_context(nursery)
        hosts = _hosts(size, folder, json.loads(network.address))
        yield Services(server, embedder, network), Fleet(size, nursery_process, hosts, time.monotonic())


def _hosts(size: Size, folder: Path, ports: list[tuple[int, int]]) -> list[Host]:
    made = []
    for number, (postgres, embedder) in enumerate(ports):
        home = folder / f"home-{number}"
        home.mkdir()
        dsn = make_conninfo(
            host="127.0.0.1", port=postgres, user=AGENT, dbname=DATABASE, sslmode="disable", gssencmode="disable"
        )
        settings = {
            "dsn": dsn,
            "pool_idle_s": str(max(1.0, POOL_IDLE_S / size.speed)),
            "embed_url": f"http://127.0.0.1:{embedder}/v1",
            "home_label": f"{kind_of(number)}-{number}",
        }
        made.append(Host(f"{number:03}", home, settings, 0.0))
    return made


def _let_live(size: Size, services: Services, fleet: Fleet, watcher: Watcher) -> None:
    """Hosts come and go until the traffic ends; Postgres is restarted in the middle."""
    restart = threading.Timer(size.real_s(size.hours / 2), services.restart, [size.real_s(DOWN_H)])
    restart.start()
    try:
        while time.monotonic() < fleet.until:
            fleet.step()
            if watcher.full:
                raise SystemExit("the disk is nearly full")
            time.sleep(POLL_S)
    finally:
        restart.cancel()
        restart.join()


def _drain(size: Size, fleet: Fleet, homes: list[Path]) -> float | None:
    """Start all hosts; seconds until no event waits in an outbox, None when the limit was reached before."""
    began = time.monotonic()
    fleet.start_all()
    while waiting(homes).events:
        if time.monotonic() > began + size.limit_s:
            return None
        time.sleep(POLL_S)
    return time.monotonic() - began


def _idle(size: Size, fleet: Fleet, dsn: str) -> Figures:
    """Nothing is said for a while: connections and rows without a vector at its end, CPU time of a host in it."""
    time.sleep(size.idle_s / 2)
    before = fleet.running_cpu_s()
    time.sleep(size.idle_s / 2)
    used = fleet.running_cpu_s() - before
    with psycopg.connect(dsn, application_name=BENCH) as connection:
        row = connection.execute(
            """select (select count(*) from conversations where embedding is null),
            (select count(*) from pg_stat_activity where backend_type = 'client backend' and application_name <> %s)""",
            [BENCH],
        ).fetchone()
    without, connections = row or (0, 0)
    cpu_ms = 1000 * used / size.hosts / (size.idle_s / 2) * 60
    return {"rows_without_vector": without, "connections": connections, "cpu_ms_per_minute": cpu_ms}


def _wal_bytes(dsn: str) -> float:
    with psycopg.connect(dsn, application_name=BENCH) as connection:
        row = connection.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()
    return float(row[0]) if row else 0.0


def _end_of_life(ends: dict[str, dict[int, float]], key: str) -> float:
    name, life, _ = key.split("-")
    return ends[name][int(life)]


def _quarters(values: list[float]) -> list[list[float]]:
    step = max(1, -(-len(values) // 4))
    return [values[start : start + step] for start in range(0, len(values), step)]
