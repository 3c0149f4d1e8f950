"""Measures what loading the plugin folder costs a host, in cold processes that run no session.

Hosts execute every top-level module of a plugin folder when they load it. A process imports the host's loader, then
loads a bare copy of the folder; counted are the modules that this imports and the milliseconds that it takes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
RUN_S_MAX = 60

PROBE = """
import importlib.metadata, json, sys, time
from pathlib import Path
from agent.memory_provider import MemoryProvider
from plugins.memory import load_memory_provider
folder, before, began, cpu_began = sys.argv[1], set(sys.modules), time.perf_counter(), time.process_time()
provider = load_memory_provider("pgvector")
ms, cpu_ms = 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - cpu_began)
new = set(sys.modules) - before
assert provider is not None, "the host did not load the plugin"
file = sys.modules[type(provider).__module__].__file__
assert Path(file).resolve().parent == Path(folder).resolve(), f"the host loaded {file}"
heavy = [name for name in ("numpy", "psycopg", "httpx", "httpcore", "rich", "pydantic") if name in new]
print(json.dumps({"modules": len(new), "ms": ms, "cpu_ms": cpu_ms, "heavy": heavy}))
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench import", description=__doc__)
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="package folders; default: this clone's"
    )
    parser.add_argument("--host", choices=["a", "b"], action="append", help="only this host (default: both)")
    parser.add_argument("--runs", type=int, default=15, help="processes for each host and folder (default 15)")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    return parser.parse_args()


def home_with(folder: Path, parent: Path) -> Path:
    """A HERMES_HOME that names the provider and has a copy of the folder as its plugin."""
    home = Path(tempfile.mkdtemp(prefix="home-", dir=parent))
    (home / "config.yaml").write_text("memory:\n  provider: pgvector\n")
    shutil.copytree(folder, home / "plugins" / "pgvector", ignore=shutil.ignore_patterns("__pycache__"))
    return home


def load(python: str, home: Path) -> dict[str, Any]:
    """Load the plugin of a home once, in a process of its own."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "HERMES_HOME": str(home)}
    done = subprocess.run(
        [python, "-P", "-c", PROBE, str(home / "plugins" / "pgvector")],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_S_MAX, cwd=home, env=environment,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(python: str, folders: list[Path], runs: int) -> list[dict[str, Any]]:
    """The figures of each folder with one host, in turns, so that the load of the machine meets all alike."""
    with tempfile.TemporaryDirectory(prefix="hermes-pgvector-bench-") as parent:
        homes = [home_with(folder, Path(parent)) for folder in folders]
        for home in homes:
            load(python, home)  # writes the bytecode
        found = [[load(python, home) for home in homes] for _ in range(runs)]
    return [
        {
            "folder": str(folder),
            "modules": max(run[index]["modules"] for run in found),
            "ms_median": statistics.median(run[index]["ms"] for run in found),
            "ms_worst": max(run[index]["ms"] for run in found),
            "cpu_ms_median": statistics.median(run[index]["cpu_ms"] for run in found),
            "heavy": found[0][index]["heavy"],
        }
        for index, folder in enumerate(folders)
    ]


def main() -> int:
    given = arguments()
    folders = [folder.resolve() for folder in given.folders] or [ROOT / "pgvector"]
    hosts = given.host or ["a", "b"]
    table = Table("host", "folder", "modules", "ms, median", "ms, worst", "ms of CPU", "heavy ones")
    table.columns[1].overflow = "fold"
    results = {}
    for host in hosts:
        made = subprocess.run([ROOT / "scripts" / "environment", f"host-{host}"], stdout=subprocess.PIPE, text=True)
        if made.returncode:
            return made.returncode
        results[host] = measure(made.stdout.strip(), folders, given.runs)
        for row in results[host]:
            figures = (
                str(row["modules"]),
                f"{row['ms_median']:.0f}",
                f"{row['ms_worst']:.0f}",
                f"{row['cpu_ms_median']:.0f}",
            )
            table.add_row(host, row["folder"], *figures, ", ".join(row["heavy"]))
    Console().print(table)
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
