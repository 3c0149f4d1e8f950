"""The write path and what it costs, measured: docs/benchmarks.md says how to read it."""

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
from report import goals, ratios, show
from scenarios import SCENARIOS, Figures, Sizes
from stage import Package, Stage, staged

QUICK = 0.2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; all by default")
    parser.add_argument(
        "--quick", action="store_true", help=f"about a minute, two beside a peer; the same as --scale {QUICK}"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the work, from 0 to 1")
    parser.add_argument("--peer", metavar="VENV", help="measure hermes-memory-pgvector 1.0 of this environment, too")
    parser.add_argument("--dsn", default="", help="an administrator's connection; default: a Postgres of its own")
    parser.add_argument("--request-ms", type=float, default=20.0, help="what the embedder takes for a request")
    parser.add_argument("--text-ms", type=float, default=2.0, help="and for each text in it")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument("--plot", metavar="FILE", help="where a picture of the burst goes, e.g. burst.png")
    given = parser.parse_args()
    unknown = set(given.scenarios) - set(SCENARIOS)
    if unknown:
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    if given.plot and given.scenarios and "burst" not in given.scenarios:
        parser.error("--plot shows the burst: name it, too")
    return given


def machine(dsn: str) -> dict[str, Any]:
    """What the figures depend on."""
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


def middle(runs: list[Figures]) -> Figures:
    """The median of each figure over several runs."""
    return {
        name: middle([run[name] for run in runs]) if isinstance(value, dict)
        else statistics.median(run[name] for run in runs)
        for name, value in runs[0].items()
    }  # fmt: skip


def measure(stage: Stage, packages: list[Package], sizes: Sizes, chosen: list[str]) -> dict[str, dict[str, Figures]]:
    """Each scenario with each package in turn, so that a change of the machine's mood meets both."""
    results: dict[str, dict[str, Figures]] = {package.name: {} for package in packages}

    for name in chosen:
        runs: dict[str, list[Figures]] = {package.name: [] for package in packages}
        for _ in range(sizes.hook_runs if name == "hooks" else 1):
            for package in packages:
                began = time.monotonic()
                runs[package.name].append(SCENARIOS[name](stage, package, sizes))
                print(f"{name}, {package.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        for package, found in runs.items():
            results[package][name] = middle(found) if len(found) > 1 else found[0]
    return results


def main() -> int:
    given = arguments()
    sizes = Sizes.scaled(QUICK if given.quick else given.scale)
    with staged(given.dsn, given.request_ms, given.text_ms) as stage:
        packages = [stage.package("ours", sys.executable)]
        try:
            if given.peer:
                packages.append(stage.package("peer", str(Path(given.peer, "bin", "python").absolute())))
            about = {
                "machine": machine(stage.dsn),
                "sizes": vars(sizes),
                "embedder_ms": [given.request_ms, given.text_ms],
            }
            results = measure(stage, packages, sizes, given.scenarios or list(SCENARIOS))
        finally:
            for package in packages:
                stage.drop(package.template)
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
