"""Simulates a fleet: hosts with the hooks' real code, that come and go, on slow and broken networks; hours in minutes.

Each host is a process with its own home and outbox. In the middle Postgres is restarted. Reports connections, queues,
delays, rows, costs, and the resource that is used up first. docs/scale.md explains it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from fleet_lives import Size
from fleet_run import POOL_MAX, Figures, run
from rich.console import Console
from rich.table import Table

FULL, OTHER_WORK = 0.9, 0.25
# Connections that only a superuser may use.
RESERVED = 3
ROWS = (
    ("turns a second", "turns_per_s"),
    ("lives of hosts that ended", "ends"),
    ("rows stored", "rows_stored"),
    ("rows lost", "rows_lost"),
    ("rows doubled", "rows_doubled"),
    ("entries stored", "entries_stored"),
    ("entries lost", "entries_lost"),
    ("entries doubled or unknown", "entries_wrong"),
    ("connections: p50", "connections_p50"),
    ("connections: most", "connections_max"),
    ("connections: allowed", "connections_limit"),
    ("connections of a host: most", "connections_per_host_max"),
    ("connections when idle", "connections_idle"),
    ("outboxes: events, most", "queue_events_max"),
    ("outboxes: kB, most", "queue_kb_max"),
    ("outboxes: events at the end of the turns", "queue_events_left"),
    ("outboxes: s until they were empty", "drained_s"),
    ("rows without a vector then", "rows_without_vector"),
    ("lag, s: p50", "lag_p50_s"),
    ("lag, s: p99", "lag_p99_s"),
    ("lag, s: max", "lag_max_s"),
    ("lag, s: max, host had ended", "lag_of_ended_host_max_s"),
    ("hook, ms: p50", "hook_p50_ms"),
    ("hook, ms: p99", "hook_p99_ms"),
    ("hook, ms of CPU: p99", "hook_cpu_p99_ms"),
    ("recall before a turn, ms: p50", "recall_p50_ms"),
    ("recall before a turn, ms: p95", "recall_p95_ms"),
    ("recall before a turn, ms: p99", "recall_p99_ms"),
    ("recall before a turn, ms: max", "recall_max_ms"),
    ("recall by tool, ms: p50", "tool_p50_ms"),
    ("recall by tool, ms: p95", "tool_p95_ms"),
    ("recall by tool, ms: p99", "tool_p99_ms"),
    ("recall by tool: degraded share", "tool_degraded_share"),
    ("host: CPU ms a turn", "host_cpu_ms_per_turn"),
    ("host: CPU ms an idle minute", "host_cpu_ms_per_idle_minute"),
    ("host: CPU s an hour", "host_cpu_s_per_hour"),
    ("host: memory MB, own", "host_private_mb"),
    ("host: memory MB, with shared", "host_rss_mb"),
    ("host: disk MB", "host_disk_mb"),
    ("Postgres: CPU ms a turn", "postgres_cpu_ms_per_turn"),
    ("Postgres: WAL kB a turn", "wal_kb_per_turn"),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench fleet", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[25, 50, 100, 200], help="hosts, of each run")
    parser.add_argument("--hours", type=float, default=1.0, help="simulated hours (default 1)")
    parser.add_argument("--speed", type=float, default=15.0, help="simulated hours in a real hour (default 15)")
    parser.add_argument("--turns-per-h", type=float, default=20.0, help="mean turns of a host in an hour (default 20)")
    parser.add_argument("--connections", type=int, default=100, help="max_connections of Postgres (default 100)")
    parser.add_argument("--pgbouncer", type=int, default=0, metavar="N", help="N connections, shared by PgBouncer")
    parser.add_argument("--request-ms", type=float, default=20.0, help="milliseconds of the embedder per request")
    parser.add_argument("--text-ms", type=float, default=2.0, help="milliseconds of the embedder per text, in addition")
    parser.add_argument("--idle-s", type=float, default=30.0, help="seconds without turns at the end (default 30)")
    parser.add_argument("--limit-s", type=float, default=180.0, help="longest wait for the outboxes at the end")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other lives and faults (default 1)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    return parser.parse_args()


def finish(figures: Figures, turns_per_h: float) -> Figures:
    """Add what follows from the figures: cost of an hour, shares of what is used up, and failures."""
    cores = os.cpu_count() or 1
    waits, used = figures["waits"], figures["cores_used"]
    active = max(1, sum(waits.values()))
    writing = sum(count for event, count in waits.items() if "WAL" in event.upper())
    locks = sum(
        count for event, count in waits.items() if event.startswith(("Lock ", "LWLock ")) and "WAL" not in event
    )
    shares = {
        "connections": figures["connections_max"] / (figures["connections_limit"] - RESERVED),
        "processor": sum(used.values()) / cores,
        "embedder (one core)": used["embedder"],
        "simulated network (one core)": used["network"],
        "WAL": writing / active,
        "locks": locks / active,
    }
    cost_ms = turns_per_h * figures["host_cpu_ms_per_turn"] + 60 * figures["host_cpu_ms_per_idle_minute"]
    return {
        **figures,
        "host_cpu_s_per_hour": cost_ms / 1000,
        "entries_wrong": figures["entries_doubled"] + figures["entries_unknown"],
        "shares": shares,
        "machine_busy": figures["cores_used_by_all"] / cores,
        "failures": _failures(figures),
    }


def _failures(figures: Figures) -> list[str]:
    wrong = [
        f"{name.replace('_', ' ')}: {figures[name]}"
        for kind in ("rows", "entries")
        for name in (f"{kind}_lost", f"{kind}_doubled", f"{kind}_unknown")
        if figures[name]
    ]
    if wrong:
        wrong.append(f"for example: {figures['examples']}")
    if figures["connections_per_host_max"] > POOL_MAX:
        wrong.append(f"connections of a host: {figures['connections_per_host_max']}, more than pool_max ({POOL_MAX})")
    if figures["drained_s"] is None:
        wrong.append("outboxes were not empty in time")
    wrong += [
        f"hosts ended {how}: {many}" for how, many in figures["ends"].items() if how not in ("by SIGKILL", "cleanly")
    ]
    return wrong


def show(runs: list[Figures]) -> None:
    table = Table("hosts", *(str(each["hosts"]) for each in runs), box=None, header_style="dim")
    for title, name in ROWS:
        table.add_row(title, *(_shown(each.get(name)) for each in runs))
    for name in runs[0]["recall_by_network"]:
        found = [each["recall_by_network"].get(name, {}) for each in runs]
        cells = (" / ".join(_shown(one.get(f"recall_p{share}_ms")) for share in (50, 95)) for one in found)
        table.add_row(f"recall before a turn, ms: p50 / p95, {name}", *cells)
    for name in runs[0]["cores_used"]:
        table.add_row(f"cores used: {name}", *(_shown(each["cores_used"][name]) for each in runs))
    for name in runs[0]["shares"]:
        table.add_row(f"used: {name}", *(f"{each['shares'][name]:.0%}" for each in runs))
    table.add_row("processor, with other work", *(f"{each['machine_busy']:.0%}" for each in runs))
    console = Console(highlight=False, width=max(100, Console().width))
    console.print(table)
    console.print(f"first bottleneck: {_bottleneck(runs)}")
    if busy := [str(each["hosts"]) for each in runs if each["machine_busy"] - each["shares"]["processor"] > OTHER_WORK]:
        console.print(f"other work on the machine made times longer: {', '.join(busy)} hosts")
    for each in runs:
        for failure in each["failures"]:
            console.print(f"[red]✗[/] {each['hosts']} hosts: {failure}", markup=True)


def _bottleneck(runs: list[Figures]) -> str:
    for each in runs:
        name, share = max(each["shares"].items(), key=lambda one: one[1])
        if share >= FULL:
            return f"{name}, with {each['hosts']} hosts ({share:.0%} used)"
    return f"none up to {each['hosts']} hosts; the nearest is {name} ({share:.0%} used)"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {how}" for how, count in sorted(value.items()))
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def main() -> int:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is stopped
    runs = []
    load = os.getloadavg()[0]
    for hosts in given.hosts:
        size = Size(
            hosts=hosts, hours=given.hours, speed=given.speed, turns_per_h=given.turns_per_h,
            connections=given.connections, pooled=given.pgbouncer, embedder_ms=(given.request_ms, given.text_ms),
            idle_s=given.idle_s, limit_s=given.limit_s, seed=given.seed,
        )  # fmt: skip
        runs.append(finish(run(size), given.turns_per_h))
        print(f"{hosts} hosts: done", file=sys.stderr, flush=True)
    show(runs)
    if given.json:
        about = {"cores": os.cpu_count(), "load_before": load, "options": vars(given)}
        Path(given.json).write_text(json.dumps({**about, "runs": runs}, indent=1) + "\n")
    return 1 if any(each["failures"] for each in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
