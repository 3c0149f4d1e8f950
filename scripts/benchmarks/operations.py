"""Measures what an operator's long commands cost running agents: recalls and hooks beside each, relative to before it.

Each command works on a theme of `--rows` turns with words and vectors, in a database with as many rows in other themes,
where the agents ask and write. The embedder answers at once. docs/benchmarks.md explains it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from environment import AgentProcess, Environment, Package
from recall import load as fill
from recall_comparison import log
from recall_corpus import Corpus, corpus, phrase
from rich.console import Console
from rich.table import Table
from servers import UNSYNCED, server_process, throwaway_postgres
from texts import turns

ROOT, HERE = Path(__file__).resolve().parents[2], Path(__file__).resolve().parent
DIMENSIONS, QUESTIONS = 768, 500
THEME, COPY, RENAMED, ARCHIVE = "worked-on", "copy", "renamed", "archive.jsonl"
# `erase` works on what `import` leaves, and `import` and `prune` on what `export` and `remap` leave.
COMMANDS: dict[str, list[str]] = {
    "export": ["export", "--theme", THEME, ARCHIVE],
    "import": ["import", "--theme", COPY, ARCHIVE],
    "erase": ["erase", "--theme", COPY, "--yes"],
    "dedupe": ["dedupe", "--theme", THEME, "--kind", "turns", "--dry-run"],
    "remap": ["remap", THEME, RENAMED, "--yes"],
    "prune": ["prune", "--theme", RENAMED, "--before", "2100-01-01", "--yes"],
    "reembed": ["reembed", "--model", "other", "--yes"],
}
SETTINGS = {"embed_model": "m", "embed_api": "openai"}
WINDOW_S, ASKED_PER_S, TURNS_PER_S = 4.0, 8.0, 5.0
FIGURES = {
    "tool": "recall by tool",
    "ambient": "recall before a turn",
    "hook": "sync_turn",
    "slow": "the slowest sync_turn",
}
RATIO_MAX = 2.0
# Done, and done with something left to do, as `erase` says while deleted rows are in the files of tables.
FINE = (0, 3)


@dataclass(frozen=True)
class Agents:
    """Three agent processes that ask by tool, ask before turns, and write, at fixed rates."""

    tool: AgentProcess
    ambient: AgentProcess
    writer: AgentProcess
    questions: list[str]

    def begin(self) -> None:
        self.writer("prepare", sessions=[[("s", *turn) for turn in turns("upkeep", round(WINDOW_S * TURNS_PER_S))]])
        self.writer("open")

    def window(self) -> dict[str, list[float]]:
        """The milliseconds of each recall, of a typical hook and of a slow one, within a few seconds."""
        ask = {"questions": self.questions, "callers": 1, "seconds": WINDOW_S, "per_s": ASKED_PER_S}
        self.tool.begin("ask", theme="smaller", how="tool", **ask)
        self.ambient.begin("ask", theme="medium", how="ambient", **ask)
        self.writer.begin("send", per_s=TURNS_PER_S)
        asked = {"tool": self.tool.end(), "ambient": self.ambient.end()}
        hook = self.writer.end()
        for name, answer in asked.items():
            if answer["degraded"] or answer["failed"]:
                log(f"{name}: {answer['degraded']} degraded, {answer['failed']} failed of {len(answer['ms'])}")
        return {name: answer["ms"] for name, answer in asked.items()} | {
            "hook": [hook["p50_us"] / 1000],
            "slow": [hook["p99_us"] / 1000],
        }


def measure(agents: Agents, command: list[str], environment: dict[str, str], folder: Path) -> dict[str, float]:
    """Figures beside the command, and before it: medians, 95th percentiles and their ratios."""
    windows = 3
    idle = _joined([agents.window() for _ in range(windows)])
    began = time.monotonic()
    busy = []
    with (folder / "command.log").open("w+b") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "hermes_memory_pgvector", *command],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=folder,
        )  # fmt: skip
        try:
            while process.poll() is None:
                busy.append(agents.window())
                seconds = time.monotonic() - began
        finally:
            process.kill()
        if process.returncode not in FINE:
            output.seek(0)
            raise SystemExit(f"{' '.join(command)} exited with {process.returncode}:\n{output.read().decode()[-3000:]}")
    found: dict[str, float] = {"seconds": seconds}
    for name, beside in _joined(busy).items():
        for kind, percent in (("p50", 50), ("p95", 95)):
            before_ms, beside_ms = (float(np.percentile(each, percent)) for each in (idle[name], beside))
            found[f"{name}_{kind}_ms"], found[f"{name}_{kind}_idle_ms"] = beside_ms, before_ms
            found[f"{name}_{kind}_ratio"] = beside_ms / before_ms
    return found


def _joined(windows: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    return {name: [ms for window in windows for ms in window[name]] for name in FIGURES}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench operations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "commands", nargs="*", metavar="COMMAND",
        help=f"{', '.join(COMMANDS)} (default: all; some need what those before them leave)",
    )  # fmt: skip
    parser.add_argument("--rows", type=int, default=100_000, help="rows that are worked on (default 100000)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    given = parser.parse_args()
    if unknown := set(given.commands) - set(COMMANDS):
        parser.error(f"no command {', '.join(sorted(unknown))}; choose from {', '.join(COMMANDS)}")
    return given


def filling(rows: int) -> Corpus:
    """The test data of so many rows, and once more in the theme that is worked on."""
    found = corpus(rows, DIMENSIONS, "", ROOT / ".cache" / "bench_vectors.npz")
    return Corpus(np.concatenate([found.vectors] * 2), found.questions, [*found.themes, *[THEME] * rows])


def show(results: dict[str, dict[str, float]]) -> None:
    """Print, for each command and figure, the values before and beside it and their ratios, and the goal."""
    table = Table("command", "s", "", "p50, ms", "ratio", "p95, ms", "ratio")
    for command, found in results.items():
        for name, title in FIGURES.items():
            cells = [
                cell
                for kind in ("p50", "p95")
                for cell in (
                    f"{found[f'{name}_{kind}_idle_ms']:.2f} → {found[f'{name}_{kind}_ms']:.2f}",
                    f"{found[f'{name}_{kind}_ratio']:.2f}",
                )
            ]
            first = name == next(iter(FIGURES))
            table.add_row(command if first else "", f"{found['seconds']:.0f}" if first else "", title, *cells)
    console = Console(highlight=False)
    console.print(table)
    # A window has too few turns for its slowest one to be more than chance.
    worst = max(found[f"{name}_p50_ratio"] for found in results.values() for name in FIGURES if name != "slow")
    mark = "✓" if worst <= RATIO_MAX else "✗"
    console.print(f"{mark} highest median, relative to the one before: {worst:.2f} (<= {RATIO_MAX:g})")


def main() -> None:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    megabytes = max(512, given.rows * 12 // 1000)
    options = {**UNSYNCED, "shared_buffers": f"{megabytes}MB", "maintenance_work_mem": f"{megabytes}MB"}
    results: dict[str, dict[str, float]] = {}
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="hermes-pgvector-bench-")))
        server = ending.enter_context(throwaway_postgres((megabytes << 20) * 2, **options))
        found = filling(given.rows)
        fill(server.dsn, found)
        np.save(folder / "questions.npy", found.questions.astype(np.float32))
        command = [sys.executable, "-P", HERE / "embedding_server.py", "0", "0", str(DIMENSIONS)]
        url = ending.enter_context(server_process([*command, folder / "questions.npy"]))
        place = Environment(server.dsn, url, (0.0, 0.0), folder, server)
        package = Package("ours", sys.executable, "")
        processes = ending.enter_context(place.agents(package, server.dsn, 3, **SETTINGS))
        agents = Agents(*processes, [phrase(number + 1000) for number in range(QUESTIONS)])
        agents.begin()
        agents.window()
        values = {"dsn": server.dsn, "embed_url": f"{url}/v1", **SETTINGS}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
        environment |= {f"HERMES_PGVECTOR_{name.upper()}": value for name, value in values.items()}
        environment["HERMES_HOME"] = str(folder)
        for name in given.commands or COMMANDS:
            results[name] = measure(agents, COMMANDS[name], environment, folder)
            ratios = ", ".join(
                f"{title} {results[name][f'{figure}_p50_ratio']:.2f}" for figure, title in FIGURES.items()
            )
            log(f"{name}: {results[name]['seconds']:.0f} s; medians relative to before: {ratios}")
    show(results)
    if given.json:
        about = {"rows": given.rows, "cores": os.cpu_count()}
        Path(given.json).write_text(json.dumps({**about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
