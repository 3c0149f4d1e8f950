"""Measures recall under load: many callers and processes, arrivals at a fixed rate, a burst and healing beside it.

Beside the peer when it is given; the packages alternate. The embedder answers at once. docs/benchmarks.md explains it.
"""

# ruff: noqa: S608  (SQL is built from constants)
from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from environment import AgentProcess, Environment, Package
from psycopg.conninfo import make_conninfo
from recall import load as fill
from recall_comparison import copy_to_peer, log
from recall_corpus import corpus, phrase
from report import summary
from rich.console import Console
from rich.table import Table
from server_usage import BENCH, connections, server_cpu_ms
from servers import UNSYNCED, server_process, throwaway_postgres
from texts import turns

from hermes_memory_pgvector.settings import Settings

ROOT, HERE = Path(__file__).resolve().parents[2], Path(__file__).resolve().parent
DIMENSIONS, QUESTIONS = 768, 1500
# Themes of 17 %, 0.85 % and 0.085 % of the rows.
THEMES = ("smaller", "medium", "sixth")
SHAPES = ((1, 1), (1, 8), (8, 8))
PROCESSES, MANY = 8, 64
POOL_MAX = Settings.model_fields["pool_max"].default
# The columns that a restore can leave empty, the share of such rows, and how long their healing may take to begin.
LACKING = {"search": "words", "embedding": "vectors"}
UNHEALED_SHARE, BEGIN_S_MAX = 0.85, 60.0
BURST_TURNS = 300
# A million rows of 768 numbers with their indexes take 6 GB.
SHARED_MB_MAX = 5000
# In a shorter time the slowest percent of random arrivals is a burst or two.
ARRIVALS_S_MIN = 20.0
SETTINGS = {
    "ours": {"embed_model": "m", "embed_api": "openai", "heal_interval_s": 1},
    "peer": {"embed_model": "m", "embed_protocol": "openai", "bulk_sync_on_init": False},
}
# To store rows with vectors takes minutes.
ONCE = ("healing",)
Figures = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A package with its filled database and its agent processes."""

    name: str
    dsn: str
    agents: list[AgentProcess]


@dataclass(frozen=True)
class Bench:
    """What all measurements share: the questions, the seconds of each measurement, and the run."""

    questions: list[str]
    seconds: float
    run: int = 0

    def ask(
        self, subject: Subject, theme: str, processes: int = 1, callers: int = 1, how: str = "tool", per_s: float = 0.0
    ) -> Figures:
        """Have the processes ask at once; rates, times and CPU times a recall, and what went wrong."""
        agents = subject.agents[:processes]
        with connections(subject.dsn) as seen:
            cpu_ms = server_cpu_ms(subject.dsn)
            for number, agent in enumerate(agents):
                first = number * len(self.questions) // processes
                asked = self.questions[first:] + self.questions[:first]
                seconds = max(self.seconds, ARRIVALS_S_MIN) if per_s else self.seconds
                agent.begin(
                    "ask", theme=theme, questions=asked, callers=callers, seconds=seconds, how=how, per_s=per_s,
                    seed=self.run,
                )  # fmt: skip
            answers = [agent.end() for agent in agents]
            cpu_ms = server_cpu_ms(subject.dsn) - cpu_ms
        times = [ms for each in answers for ms in each["ms"]]
        count, budget_ms = len(times), _budget_ms(how)
        return {
            "recalls_per_s": count / max(each["seconds"] for each in answers),
            "p50_ms": float(np.percentile(times, 50)),
            "p99_ms": float(np.percentile(times, 99)),
            "agent_cpu_ms": sum(each["cpu_ms"] for each in answers) / count,
            "server_cpu_ms": cpu_ms / count,
            "connections": max(seen, default=0),
            "longest_share_of_budget": max(times) / budget_ms,
            **{name: sum(each[name] for each in answers) for name in ("degraded", "failed", "empty")},
        }


def closed(bench: Bench, subject: Subject) -> dict[str, Figures]:
    """Callers that ask again as soon as they are answered: themes of three sizes, all rows, ambient recall."""
    found = {
        f"{theme}, {processes} × {callers}": bench.ask(subject, theme, processes, callers)
        for theme in THEMES
        for processes, callers in SHAPES
    }
    found["all rows, 1 × 8"] = bench.ask(subject, "medium", 1, 8, "all")
    found[f"sixth, 1 × {MANY}"] = bench.ask(subject, "sixth", 1, MANY)
    return found


def ambient(bench: Bench, subject: Subject) -> dict[str, Figures]:
    """Recall before a turn: idle, at full load, and at arrivals of half that rate, quiet and beside a burst."""
    idle = bench.ask(subject, "medium", 1, 1, "ambient")
    full = bench.ask(subject, "medium", 1, 8, "ambient")
    rate = full["recalls_per_s"] / 2
    found = {"ambient, idle": idle, "ambient, 1 × 8": full}
    found["ambient, arrivals at half of it"] = bench.ask(subject, "medium", 1, MANY, "ambient", rate)
    with _burst(subject):
        found["ambient, the same beside a burst"] = bench.ask(subject, "medium", 1, MANY, "ambient", rate)
    for figures in list(found.values())[2:]:
        figures["p99_share_of_idle_p50"] = figures["p99_ms"] / idle["p50_ms"]
        figures["ideal_share"] = 1000 * _ideal_p99_s(rate, bench) / idle["p50_ms"]
    return found


def _ideal_p99_s(rate: float, bench: Bench) -> float:
    """The 99th percentile at these arrivals of one queue whose every recall takes the same time, 1 / (2 × rate)."""
    chance, at, free_at, took = random.Random(bench.run), 0.0, 0.0, []
    while at < max(bench.seconds, ARRIVALS_S_MIN):
        free_at = max(at, free_at) + 0.5 / rate
        took.append(free_at - at)
        at += chance.expovariate(rate)
    return float(np.percentile(took, 99))


def healing(bench: Bench, subject: Subject) -> dict[str, Figures]:
    """One caller while all processes run, before and beside the healing of rows without words or without vectors."""
    idle = bench.ask(subject, "smaller", 1, 1)
    found = {"healing, before": idle}
    for column, what in LACKING.items():
        with _without(column, subject.dsn):
            beside = bench.ask(subject, "smaller", 1, 1)
        beside["p50_share_of_idle_p50"] = beside["p50_ms"] / idle["p50_ms"]
        found[f"healing, beside {what}"] = beside
    return found


PARTS: dict[str, Callable[[Bench, Subject], dict[str, Figures]]] = {
    "closed": closed, "ambient": ambient, "healing": healing,
}  # fmt: skip


def _budget_ms(how: str) -> float:
    fields = Settings.model_fields
    return 1000 * float(fields["prefetch_budget_s" if how == "ambient" else "recall_budget_s"].default)


@contextmanager
def _burst(subject: Subject) -> Iterator[None]:
    """Another process stores turns without a pause while the block runs; they are removed afterwards."""
    agent = subject.agents[-1]
    agent("prepare", sessions=[[("burst", *turn) for turn in turns("burst", BURST_TURNS)]])
    agent("open")
    agent.begin("send")
    try:
        yield
    finally:
        agent.end()
        _execute(subject.dsn, "delete from conversations where session_id = 'burst'")


@contextmanager
def _without(column: str, dsn: str) -> Iterator[None]:
    """Copies of rows that lack this column, as a restore leaves them; the block begins when some were healed."""
    theme = f"theme-without-{column}"
    columns = ", ".join(["session_id, role, content, ts", *(LACKING.keys() - {column})])
    _execute(
        dsn,
        f"""insert into conversations (agent_identity, {columns}) select '{theme}', {columns} from conversations
        limit (select {UNHEALED_SHARE} * count(*) from conversations)""",
    )
    began = time.monotonic()
    try:
        while not _exists(dsn, f"agent_identity = '{theme}' and {column} is not null"):
            if time.monotonic() > began + BEGIN_S_MAX:
                raise SystemExit(f"no row got its {LACKING[column]} within {BEGIN_S_MAX:g} s")
            time.sleep(0.2)
        yield
        if not _exists(dsn, f"agent_identity = '{theme}' and {column} is null"):
            log(f"all rows had their {LACKING[column]} before the measurement ended: raise --rows or lower --seconds")
    finally:
        _execute(dsn, f"delete from conversations where agent_identity = '{theme}'")
        _execute(dsn, "vacuum conversations")


def _execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True, application_name=BENCH) as connection:
        connection.execute(statement.encode())


def _exists(dsn: str, condition: str) -> bool:
    with psycopg.connect(dsn, application_name=BENCH) as connection:
        found = connection.execute(f"select from conversations where {condition} limit 1".encode()).fetchone()
        return found is not None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench load", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--rows", type=int, default=100_000, help="rows in total (default 100000)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement but healing (default 3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of each measurement (default 4)")
    parser.add_argument("--peer", type=Path, metavar="VENV", help="also measure hermes-memory-pgvector 1.0")
    parser.add_argument("--vectors", default="", metavar="NPZ", help="as for scripts/bench recall")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    return given


def measure(given: argparse.Namespace, subjects: list[Subject]) -> dict[str, Any]:
    """Median, worst and runs of each figure, by package and measurement."""
    questions = [phrase(number + 1000) for number in range(QUESTIONS)]
    runs: dict[str, dict[str, list[Figures]]] = {subject.name: {} for subject in subjects}
    for subject in subjects:
        # The first second of a process has no vectors of questions yet.
        Bench(questions, given.seconds).ask(subject, "smaller", PROCESSES, 1)
    for number in range(given.runs):
        bench = Bench(questions, given.seconds, number)
        for part in given.parts or PARTS:
            if part in ONCE and number:
                continue
            for subject in subjects if part == "closed" else subjects[:1]:
                for name, figures in PARTS[part](bench, subject).items():
                    runs[subject.name].setdefault(name, []).append(figures)
                log(f"run {number + 1}: {part}, {subject.name}")
    return {package: {name: summary(each) for name, each in found.items()} for package, found in runs.items()}


def goals(results: dict[str, Any]) -> list[tuple[str, float, float, bool]]:
    """Title, value, limit, and whether the value is at most the limit, of each goal that was measured."""
    ours, peers = results["ours"], results.get("peer", {})
    found = []
    for theme in THEMES:
        name = f"{theme}, 1 × 8"
        if name in ours and name in peers:
            rates = [each[name]["recalls_per_s"]["median"] for each in (peers, ours)]
            found.append((f"{name}: rate of the peer, relative to ours", rates[0] / rates[1], 1.0))
            cpus = [each[name]["server_cpu_ms"]["median"] for each in (ours, peers)]
            found.append((f"{name}: CPU time of the server, relative to the peer's", cpus[0] / cpus[1], 1.0))
    for name, figures in ours.items():
        if "p99_share_of_idle_p50" in figures:
            found.append((f"{name}: p99, relative to the idle p50", figures["p99_share_of_idle_p50"]["worst"], 4.0))
        if "p50_share_of_idle_p50" in figures:
            found.append((f"{name}: p50, relative to that before", figures["p50_share_of_idle_p50"]["worst"], 1.25))
    most = {
        kind: max(each[kind]["worst"] for each in ours.values()) for kind in ("connections", "longest_share_of_budget")
    }
    found.append((f"connections of {PROCESSES} processes", most["connections"], float(PROCESSES * POOL_MAX)))
    found.append(("longest recall, share of its budget", most["longest_share_of_budget"], 1.0))
    return [(title, value, limit, value <= limit) for title, value, limit in found]


def show(results: dict[str, Any]) -> None:
    """Print each figure as its median and, in parentheses, its worst value, and the goals."""
    titles = list(dict.fromkeys(name for each in results["ours"].values() for name in each))
    table = Table("recalls", "", *(title.replace("_", " ") for title in titles), box=None, header_style="dim")
    for name in results["ours"]:
        for package, found in results.items():
            figures = found.get(name, {})
            cells = [f"{one['median']:.3g} ({one['worst']:.3g})" if one else "" for one in map(figures.get, titles)]
            if figures:
                table.add_row(name, package, *cells)
    console = Console(highlight=False, width=max(200, Console().width))
    console.print(table)
    for title, value, limit, met in goals(results):
        console.print(f"{'[green]✓[/]' if met else '[red]✗[/]'} {title}: {value:.3g} (<= {limit:g})")


def main() -> None:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    megabytes = min(max(512, given.rows * 6 // 1000), SHARED_MB_MAX)
    options = {**UNSYNCED, "shared_buffers": f"{megabytes}MB", "maintenance_work_mem": f"{megabytes}MB"}
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="hermes-pgvector-bench-")))
        server = ending.enter_context(
            throwaway_postgres(_in_memory(given.rows, megabytes), **options, max_connections="1000")
        )
        found = corpus(given.rows, DIMENSIONS, given.vectors, ROOT / ".cache" / "bench_vectors.npz")
        fill(server.dsn, found)
        np.save(folder / "questions.npy", found.questions.astype(np.float32))
        command = [sys.executable, "-P", HERE / "embedding_server.py", "0", "0", str(DIMENSIONS)]
        url = ending.enter_context(server_process([*command, folder / "questions.npy"]))
        place = Environment(server.dsn, url, (0.0, 0.0), folder, server)
        subjects = []
        for name, python, dsn in _packages(given.peer, server.dsn):
            agents = place.agents(Package(name, python, ""), dsn, PROCESSES, **SETTINGS[name])
            subjects.append(Subject(name, dsn, ending.enter_context(agents)))
        results = measure(given, subjects)
    show(results)
    if given.json:
        about = {"rows": given.rows, "runs": given.runs, "seconds": given.seconds, "cores": os.cpu_count()}
        Path(given.json).write_text(json.dumps({**about, "results": results, "goals": goals(results)}, indent=1) + "\n")


def _in_memory(rows: int, megabytes: int) -> int:
    """The bytes of RAM for the files of the server; none where its buffers do not hold all rows."""
    return (megabytes << 20) * 2 if rows <= megabytes * 1000 // 6 else 0


def _packages(venv: Path | None, dsn: str) -> Iterator[tuple[str, str, str]]:
    """Name, Python and filled database of each package."""
    yield "ours", sys.executable, dsn
    if venv:
        peer_dsn = make_conninfo(dsn, dbname="peer")
        _execute(dsn, "create database peer")
        copy_to_peer(dsn, peer_dsn, venv)
        yield "peer", str(Path(venv, "bin", "python").absolute()), peer_dsn


if __name__ == "__main__":
    main()
