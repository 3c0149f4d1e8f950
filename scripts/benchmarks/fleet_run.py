"""One run of a simulated fleet: its services, what happens to them, and the figures."""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from environment import DIMENSIONS
from fleet_lives import POLL_S, Fleet, Host, Size
from fleet_network import kind_of
from fleet_record import compare, lags, read
from fleet_watch import Watcher, folder_mb, machine_busy_s, memory_mb, waiting
from pgbouncer import admit, pgbouncer
from psycopg.conninfo import make_conninfo
from server_usage import BENCH, process_cpu_s, server_cpu_ms
from servers import ServerProcess, controlled_process, throwaway_postgres

from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.embedded.cluster import AGENT, DATABASE
from hermes_memory_pgvector.store.embedded.server import EmbeddedServer
from hermes_memory_pgvector.store.schema.migrations import migrate

HERE = Path(__file__).resolve().parent
# How long Postgres is down, in hours of the simulated clock.
DOWN_H = 1 / 30
POOL_MAX, POOL_IDLE_S = (Settings.model_fields[name].default for name in ("pool_max", "pool_idle_s"))
Figures = dict[str, Any]


class Services:
    """Postgres, the embedder, and the network between them and the hosts."""

    def __init__(self, server: EmbeddedServer, processes: dict[str, int], network: ServerProcess) -> None:
        self.server, self.network, self._processes = server, network, processes
        self._cpu_s, self.restart_s = -server_cpu_ms(server.dsn) / 1000, 0.0

    def restart(self, down_s: float) -> None:
        self._cpu_s += server_cpu_ms(self.server.dsn) / 1000
        began = time.monotonic()
        self.server.stop(mode="fast")
        time.sleep(down_s)
        self.server.ensure_running()
        if "pgbouncer" in self._processes:
            admit(self.server, AGENT)
        self.restart_s = time.monotonic() - began

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of each service so far."""
        postgres = self._cpu_s + server_cpu_ms(self.server.dsn) / 1000
        return {
            "postgres": postgres,
            **{name: process_cpu_s(process) for name, process in self._processes.items()},
        }


def run(size: Size) -> Figures:
    """Simulate a fleet and return its figures."""
    with _fleet(size) as (services, fleet):
        homes, dsn = [host.home for host in fleet.hosts], services.server.dsn
        before = _used(services, fleet)
        with Watcher(dsn, homes) as watcher:
            _let_live(size, services, fleet, watcher)
            used = {name: value - before[name] for name, value in _used(services, fleet).items()}
            left = waiting(homes).events
        services.network.tell("calm")
        drained_s = _drain(size, fleet, homes)
        idle = _idle(size, fleet, dsn)
        memory = [memory_mb(host.pid) for host in fleet.hosts if host.pid]
        fleet.end_all()
        records = read({host.record: kind_of(int(host.name)) for host in fleet.hosts})
        return {
            "hosts": size.hosts,
            "ends": dict(fleet.ends),
            "postgres_restart_s": services.restart_s,
            "queue_events_left": left,
            "drained_s": drained_s,
            "connections_limit": size.connections,
            "connections_per_host_max": max(json.loads(services.network.tell("connections"))),
            "host_rss_mb": statistics.median(resident for resident, _ in memory),
            "host_private_mb": statistics.median(private for _, private in memory),
            "host_disk_mb": statistics.median(map(folder_mb, homes)),
            **watcher.seen.figures(),
            **idle,
            **compare(records, homes, dsn),
            **records.figures(),
            **lags(records, fleet.ended, dsn),
            **_costs(size, used, max(1, records.turns)),
        }


def _used(services: Services, fleet: Fleet) -> dict[str, float]:
    """CPU seconds so far of the services, the hosts, this process and the machine, and bytes of WAL."""
    return {
        **services.cpu_s(),
        "hosts": fleet.cpu_s + fleet.running_cpu_s(),
        "benchmark": time.process_time(),
        "machine": machine_busy_s(),
        "wal": _wal_bytes(services.server.dsn),
    }


def _costs(size: Size, used: dict[str, float], turns: int) -> Figures:
    """What a turn costs, and how many cores were used meanwhile."""
    seconds = size.real_s(size.hours)
    wal_kb, machine_s = used.pop("wal") / 1024, used.pop("machine")
    return {
        "traffic_s": seconds,
        "turns_per_s": turns / seconds,
        "host_cpu_ms_per_turn": 1000 * used["hosts"] / turns,
        "postgres_cpu_ms_per_turn": 1000 * used["postgres"] / turns,
        "wal_kb_per_turn": wal_kb / turns,
        "cores_used": {name: cpu_s / seconds for name, cpu_s in used.items()},
        "cores_used_by_all": machine_s / seconds,
    }


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
        socket, processes = next(server.paths.sockets.glob(".s.PGSQL.*[0-9]")), {"embedder": embedder.pid}
        if size.pooled:
            socket, processes["pgbouncer"] = ending.enter_context(pgbouncer(server, AGENT, size.pooled))
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
        processes["network"] = network.pid
        yield Services(server, processes, network), Fleet(size, nursery_process, hosts, time.monotonic())


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
    return {
        "rows_without_vector": without,
        "connections_idle": connections,
        "host_cpu_ms_per_idle_minute": 1000 * used / size.hosts / (size.idle_s / 2) * 60,
    }


def _wal_bytes(dsn: str) -> float:
    with psycopg.connect(dsn, application_name=BENCH) as connection:
        row = connection.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()
    return float(row[0]) if row else 0.0
