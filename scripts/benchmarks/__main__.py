"""Measures the write path: throughput, hook times, losses, recovery and resources. docs/benchmarks.md explains it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from bundled_model import backlog, bundled, bundled_long
from environment import Environment, Package, environment
from far_database import far
from faults import orphan_rows, outage, recovery, shutdown
from report import goals, show, summary
from run import Figures, Run, Sizes
from write_path import bare_loop, burst, footprint, hooks, sessions, start, steady

# Each scenario and its number of runs.
SCENARIOS: dict[Callable[[Run], Figures], int] = {
    hooks: 3, start: 5, burst: 3, bare_loop: 3, steady: 1, sessions: 1, footprint: 1, far: 3, outage: 1,
    bundled: 1, bundled_long: 1, recovery: 1, orphan_rows: 1, shutdown: 1, backlog: 1,
}  # fmt: skip
# The bare loop takes equally long each time.
RUNS_MAX = {bare_loop: 3}
BY_NAME = {scenario.__name__: scenario for scenario in SCENARIOS}
# The peer has no bundled model, and fills in no vectors later.
ONLY_OURS = (bundled, bundled_long, backlog, recovery, orphan_rows, shutdown)
LOAD_MAX = 0.5


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    default = "all, and backlog with --data"
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"{', '.join(BY_NAME)} (default: {default})")
    parser.add_argument(
        "--runs",
        type=int,
        help="runs of each scenario (default: 5 of start, 3 of hooks, burst, bare_loop, far, else 1)",
    )
    parser.add_argument("--warm", action="store_true", help="store one turn in each agent before it is measured")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the work, from 0 to 1")
    parser.add_argument("--limit-s", type=float, default=120.0, help="longest wait for the rows of a scenario")
    parser.add_argument(
        "--peer", metavar="VENV", help="also measure hermes-memory-pgvector 1.0 in this virtual environment"
    )
    parser.add_argument(
        "--dsn", default="", help="connection of a role that may create databases (default: a throw-away Postgres)"
    )
    parser.add_argument("--request-ms", type=float, default=20.0, help="milliseconds of the embedder per request")
    parser.add_argument("--text-ms", type=float, default=2.0, help="milliseconds of the embedder per text, in addition")
    parser.add_argument("--data", metavar="FILE", type=Path, help="conversations in LoCoMo's format, for backlog")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    parser.add_argument("--plot", metavar="FILE", help="plot the burst into this file, such as burst.png")
    given = parser.parse_args()
    if unknown := set(given.scenarios) - set(BY_NAME):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; choose from {', '.join(BY_NAME)}")
    if "backlog" in given.scenarios and not given.data:
        parser.error("backlog needs --data FILE")
    if given.plot and given.scenarios and "burst" not in given.scenarios:
        parser.error("--plot needs the scenario burst")
    return given


def machine(dsn: str) -> dict[str, Any]:
    """The hardware and software that the figures depend on."""
    with psycopg.connect(dsn) as connection:
        [postgres] = connection.execute("show server_version").fetchone() or [""]
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "cores": os.cpu_count(),
        "processor": processor[1] if processor else "",
        "system": platform.platform(),
        "postgres": postgres,
        "python": platform.python_version(),
    }


def conversations(path: Path | None) -> tuple[tuple[str, str, str], ...]:
    """The turns of a file of conversations, as (session, question, answer)."""
    if path is None:
        return ()
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from evaluation.cases import locomo

    return tuple(turn for case in locomo(path) for turn in case.turns())


def measure(
    place: Environment, packages: list[Package], chosen: list[Callable[[Run], Figures]], given: argparse.Namespace
) -> dict[str, dict[str, list[Figures]]]:
    """The figures of each run, by package and scenario.

    The packages and scenarios alternate, so that other load on the machine affects all alike.
    """
    results: dict[str, dict[str, list[Figures]]] = {package.name: {} for package in packages}
    sizes, said = Sizes.scaled(given.scale, given.limit_s), conversations(given.data)
    runs = {each: min(given.runs or SCENARIOS[each], RUNS_MAX.get(each, sys.maxsize)) for each in chosen}
    for number in range(max(runs.values())):
        for scenario in chosen:
            for package in packages:
                if number >= runs[scenario] or (package.name == "peer" and scenario in ONLY_OURS):
                    continue
                began = time.monotonic()
                found = scenario(Run(place, package, sizes, given.warm, said))
                results[package.name].setdefault(scenario.__name__, []).append(found)
                print(
                    f"{scenario.__name__}, {package.name}, run {number + 1}: {time.monotonic() - began:.0f} s",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
    return results


def main() -> int:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    names = given.scenarios or [name for name in BY_NAME if name != "backlog" or given.data]
    load = os.getloadavg()[0]
    print(f"load average before: {load:.2f}, nice value {os.nice(0)}", file=sys.stderr)
    if load > LOAD_MAX:
        print("the machine has other work: only ratios within a run are meaningful", file=sys.stderr)
    with environment(given.dsn, given.request_ms, given.text_ms) as place:
        packages = [place.package("ours", sys.executable)]
        try:
            if given.peer:
                packages.append(place.package("peer", str(Path(given.peer, "bin", "python").absolute())))
            about = {"machine": machine(place.dsn), "load_before": load, "nice": os.nice(0), "options": options(given)}
            runs = measure(place, packages, [BY_NAME[name] for name in names], given)
        finally:
            for package in packages:
                place.drop(package.template)
    results = {package: {name: summary(found) for name, found in each.items()} for package, each in runs.items()}
    report = {**about, "results": results, "goals": goals(results)}
    show(report)
    if given.json:
        Path(given.json).write_text(json.dumps(report, indent=1) + "\n")
    if given.plot:
        from plot import plot

        plot({package: each["burst"][-1] for package, each in runs.items()}, given.plot)
    return 1 if any("rows lost" in goal["goal"] and not goal["met"] for goal in report["goals"]) else 0


def options(given: argparse.Namespace) -> dict[str, Any]:
    """The options that the figures depend on."""
    return {name: getattr(given, name) for name in ("runs", "warm", "scale", "limit_s", "request_ms", "text_ms")}


if __name__ == "__main__":
    sys.exit(main())
