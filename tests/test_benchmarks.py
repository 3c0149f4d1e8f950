"""The benchmark suite runs, counts what it says it counts, and loses nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


def test_an_unknown_scenario_is_named_before_anything_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", BENCHMARKS, "brust"], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 2
    assert "no scenario brust" in done.stderr
