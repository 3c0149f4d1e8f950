"""The benchmark suite runs, counts what it says it counts, and loses nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "scripts" / "benchmarks"


def test_a_hundredth_of_the_benchmarks_measures_everything_and_loses_nothing(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-P", BENCHMARKS, "--scale", "0.01", "--text-ms", "0.1", "--json", figures]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    report = json.loads(figures.read_text())
    measured = report["results"]["ours"]
    assert set(measured) == {"hooks", "burst", "bare_loop", "steady", "fleet", "outage", "footprint"}
    lost = {name: found["rows_lost"] for name, found in measured.items() if "rows_lost" in found}
    assert lost == {"burst": 0, "bare_loop": 0, "steady": 0, "fleet": 0, "outage": 0, "footprint": 0}
    burst = measured["burst"]
    assert burst["rows_offered"] == 2 * report["sizes"]["burst_turns"] == burst["samples"][-1][1]
    assert burst["rows_without_vector"] == 0 < burst["rows_per_s"]
    assert measured["fleet"]["connections_idle"] == 0 < measured["fleet"]["connections_per_process"] <= 3
    assert 0 < measured["fleet"]["threads_max"] <= 6
    assert measured["footprint"]["all_leaked"]["threads"] <= 0
    assert "burst: rows lost" in done.stdout


@pytest.mark.slow
def test_the_benchmark_of_recall_under_load_measures_each_case_within_its_bounds(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    vectors = {name: chance.normal(1, 1, (count, 48)) for name, count in {"passages": 60, "queries": 20}.items()}
    units = {name: each / np.linalg.norm(each, axis=1, keepdims=True) for name, each in vectors.items()}
    np.savez(tmp_path / "vectors.npz", **units)
    sizes = ["--rows", "1500", "--seconds", "0.2", "--runs", "1", "--vectors", "vectors.npz", "--json", "load.json"]
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "load.py", *sizes], capture_output=True, text=True, cwd=tmp_path, timeout=240
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "load.json").read_text())
    measured = report["results"]["ours"]
    assert len(measured) == 17
    assert all(figures["recalls_per_s"]["worst"] > 0 == figures["failed"]["worst"] for figures in measured.values())
    assert max(figures["longest_share_of_budget"]["worst"] for figures in measured.values()) <= 1
    assert {"connections of 8 processes", "longest recall, share of its budget"} < {goal[0] for goal in report["goals"]}


def test_an_unknown_scenario_is_named_before_anything_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", BENCHMARKS, "brust"], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 2
    assert "no scenario brust" in done.stderr
