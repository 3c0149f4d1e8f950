"""Measures the write path: throughput, hook times, losses and resources. docs/benchmarks.md explains the figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
from environment import Environment, Package, environment
from report import goals, ratios, show
from scenarios import SCENARIOS, Figures, Sizes

QUICK = 0.2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"{', '.join(SCENARIOS)} (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help=f"the same as --scale {QUICK}: about a minute, two with --peer"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the work, from 0 to 1")
    parser.add_argument(
        "--peer", metavar="VENV", help="also measure hermes-memory-pgvector 1.0 in this virtual environment"
    )
    parser.add_argument(
        "--dsn", default="", help="connection of a role that may create databases (default: a throw-away Postgres)"
    )
    parser.add_argument("--request-ms", type=float, default=20.0, help="milliseconds of the embedder per request")
    parser.add_argument("--text-ms", type=float, default=2.0, help="milliseconds of the embedder per text, in addition")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    parser.add_argument("--plot", metavar="FILE", help="plot the burst into this file, such as burst.png")
    given = parser.parse_args()
    unknown = set(given.scenarios) - set(SCENARIOS)
    if unknown:
        parser.error(f"no scenario {', '.join(sorted(unknown))}; choose from {', '.join(SCENARIOS)}")
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
        "load_before": os.getloadavg()[0],
    }


def medians(runs: list[Figures]) -> Figures:
    """The median of each figure over several runs."""
    return {
        name: medians([run[name] for run in runs]) if isinstance(value, dict)
        else statistics.median(run[name] for run in runs)
        for name, value in runs[0].items()
    }  # fmt: skip


def measure(
    place: Environment, packages: list[Package], sizes: Sizes, chosen: list[str]
) -> dict[str, dict[str, Figures]]:
    """Figures by package and scenario. The packages alternate, so that other load on the machine affects both."""
    results: dict[str, dict[str, Figures]] = {package.name: {} for package in packages}

    for name in chosen:
        runs: dict[str, list[Figures]] = {package.name: [] for package in packages}
        for _ in range(sizes.hook_runs if name == "hooks" else 1):
            for package in packages:
                began = time.monotonic()
                runs[package.name].append(SCENARIOS[name](place, package, sizes))
                print(f"{name}, {package.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        for package, found in runs.items():
            results[package][name] = medians(found) if len(found) > 1 else found[0]
    return results


def main() -> int:
    given = arguments()
    sizes = Sizes.scaled(QUICK if given.quick else given.scale)
    with environment(given.dsn, given.request_ms, given.text_ms) as place:
        packages = [place.package("ours", sys.executable)]
        try:
            if given.peer:
                packages.append(place.package("peer", str(Path(given.peer, "bin", "python").absolute())))
            about = {
                "machine": machine(place.dsn),
                "sizes": vars(sizes),
                "embedder_ms": [given.request_ms, given.text_ms],
            }
            results = measure(place, packages, sizes, given.scenarios or list(SCENARIOS))
        finally:
            for package in packages:
                place.drop(package.template)
    report = {**about, "results": results, "ratios": ratios(results), "goals": goals(results)}
    show(report)
    if given.json:
        Path(given.json).write_text(json.dumps(report, indent=1) + "\n")
    if given.plot:
        from plot import plot

        plot(report, given.plot)
    lost = [goal for goal in report["goals"] if goal["goal"].startswith("rows lost") and not goal["met"]]
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
