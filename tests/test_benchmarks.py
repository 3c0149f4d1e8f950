"""The benchmark suite runs, counts what it says it counts, and loses nothing."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from waiting import wait_for

BENCHMARKS = Path(__file__).resolve().parents[1] / "scripts" / "benchmarks"
SCALE = ["--scale", "0.01", "--text-ms", "0.1", "--runs", "1"]
LOST = "rows_lost"


def measured(folder: Path, *scenarios: str) -> dict[str, dict[str, Any]]:
    """The figures of a small run of the scenarios, by scenario."""
    figures = folder / "figures.json"
    command = [sys.executable, "-P", BENCHMARKS, *scenarios, *SCALE, "--json", figures]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=240)
    assert done.returncode == 0, done.stderr
    report = json.loads(figures.read_text())
    found = {
        scenario: {name: figure["worst"] for name, figure in each.items()}
        for scenario, each in report["results"]["ours"].items()
    }
    assert set(found) == set(scenarios)
    for scenario, each in found.items():
        lost = {name: value for name, value in each.items() if name.endswith(LOST)}
        assert not any(lost.values()), (scenario, lost)
        assert not lost or f"{scenario}: " in done.stdout
    return found


def test_a_hundredth_of_the_write_path_is_measured_and_nothing_is_lost(tmp_path: Path) -> None:
    found = measured(tmp_path, "hooks", "burst", "bare_loop", "steady", "sessions", "footprint", "outage")
    assert found["burst"]["rows_offered"] == 80
    assert found["burst"]["rows_without_vector"] == 0 < found["burst"]["rows_per_s"]
    assert found["sessions"]["connections_idle"] == 0 < found["sessions"]["connections_per_process"] <= 3
    assert 0 < found["sessions"]["threads_max"] <= 6
    assert found["footprint"]["all_leaked_threads"] <= 0


def test_a_hundredth_of_the_faults_is_measured_and_nothing_is_lost(tmp_path: Path) -> None:
    found = measured(tmp_path, "orphan_rows", "shutdown")
    assert found["orphan_rows"]["rows_incomplete"] == 0
    assert found["shutdown"]["later_rows_in_spool_only"] == found["shutdown"]["from_start_rows_in_spool_only"] == 0


@pytest.mark.slow
def test_the_mcp_server_starts_in_at_most_one_and_a_half_times_the_time_of_a_bare_server(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-P", BENCHMARKS / "serving.py", "--runs", "7", "--json", figures]
    subprocess.run(command, capture_output=True, timeout=240)
    ratios = {sdk: found["ratio"] for sdk, found in json.loads(figures.read_text()).items()}
    assert [sdk.split(".")[0] for sdk in ratios] == ["1", "2"]
    assert max(ratios.values()) <= 1.5, ratios


FLEET = [sys.executable, BENCHMARKS / "fleet.py", "--hosts", "10", "--speed", "60", "--idle-s", "2"]


@pytest.mark.parametrize("pooled", [0, pytest.param(5, marks=pytest.mark.slow)])
def test_a_fleet_that_comes_and_goes_loses_and_doubles_nothing(tmp_path: Path, pooled: int) -> None:
    if pooled and not shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin"):
        pytest.skip("needs PgBouncer: apt-get install pgbouncer")
    command = [*FLEET, "--hours", "0.5", "--pgbouncer", str(pooled), "--json", tmp_path / "figures.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    [found] = json.loads((tmp_path / "figures.json").read_text())["runs"]
    assert found["rows_stored"] >= 2 * found["turns_accepted"] > 0 == found["rows_lost"] + found["rows_doubled"]
    assert found["ends"]["by SIGKILL"] > 0 < found["postgres_restart_s"]
    assert 0 < found["connections_per_host_max"] <= 3
    assert found["connections_max"] <= (pooled or found["connections_limit"])


def test_lost_and_doubled_rows_of_a_fleet_are_found(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    record = importlib.import_module("fleet_record")
    with psycopg.connect(database) as connection:
        for key, role in (("001-1-1", "user"), ("001-1-2", "user"), ("001-1-2", "user"), ("001-1-3", "user")):
            connection.execute(
                "insert into conversations (agent_identity, session_id, role, content) values ('ops', 's', %s, %s)",
                [role, f"{key} asks"],
            )
    keys = {"001-1-1": ("", 0.0), "001-1-2": ("", 0.0)}
    found = record.compare(record.Records(accepted=keys, meant=set(keys)), [], database)
    assert [found[f"rows_{kind}"] for kind in ("lost", "doubled", "unknown")] == [2, 1, 1]


@pytest.mark.slow
def test_an_interrupted_fleet_leaves_nothing_behind() -> None:
    # For root, Postgres runs under another account, which cannot reach pytest's folder.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        command, environment = [*FLEET, "--hours", "9"], {**os.environ, "TMPDIR": folder}
        with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL) as process:
            wait_for(lambda: len(list(Path(folder).glob("*/home-*/pgvector/spool"))) == 10)
            process.send_signal(signal.SIGINT)
            process.wait(60)
        assert not os.listdir(folder)
        wait_for(lambda: not [path for path in Path("/proc").glob("[0-9]*/cmdline") if folder in _text(path)])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.mark.slow
def test_a_hundredth_of_the_recoveries_is_measured(tmp_path: Path) -> None:
    found = measured(tmp_path, "recovery")["recovery"]
    assert len(found) == 12
    assert None not in found.values()


@pytest.mark.slow
def test_a_hundredth_of_the_bundled_model_is_measured(tmp_path: Path) -> None:
    for figures in measured(tmp_path, "bundled", "bundled_long").values():
        assert figures["rows_without_vector"] == 0 < figures["model_pace_share"]


def save_vectors(path: Path) -> None:
    chance = np.random.default_rng(1)
    vectors = {name: chance.normal(1, 1, (count, 48)) for name, count in {"passages": 60, "queries": 20}.items()}
    np.savez(path, **{name: each / np.linalg.norm(each, axis=1, keepdims=True) for name, each in vectors.items()})


@pytest.mark.slow
def test_the_benchmark_of_recall_under_load_measures_each_case_within_its_bounds(tmp_path: Path) -> None:
    save_vectors(tmp_path / "vectors.npz")
    sizes = ["--rows", "1500", "--seconds", "0.2", "--runs", "1", "--vectors", "vectors.npz", "--json", "load.json"]
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "load.py", *sizes], capture_output=True, text=True, cwd=tmp_path, timeout=240
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "load.json").read_text())
    measured = report["results"]["ours"]
    assert len(measured) == 18
    assert all(figures["recalls_per_s"]["worst"] > 0 == figures["failed"]["worst"] for figures in measured.values())
    assert max(figures["longest_share_of_budget"]["worst"] for figures in measured.values()) <= 1
    assert {"connections of 8 processes", "longest recall, share of its budget"} < {goal[0] for goal in report["goals"]}


def test_an_unknown_scenario_is_named_before_anything_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", BENCHMARKS, "brust"], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 2
    assert "no scenario brust" in done.stderr


@pytest.mark.slow
def test_each_command_answers_in_a_terminal(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, BENCHMARKS / "first_answers.py", "--rows", "2000", "--json", figures]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    answers = json.loads(figures.read_text())["answers"]
    # The doctor finds that no host uses this memory.
    failed = {name: each["text"] for name, each in answers.items() if each["code"] not in (0, 3)}
    assert {name.split()[0] for name in failed} == {"doctor"}, failed
    assert not [name for name, each in answers.items() if "Traceback" in each["text"]]


@pytest.mark.slow
def test_the_benchmark_of_scale_takes_each_step(tmp_path: Path) -> None:
    save_vectors(tmp_path / "vectors.npz")
    sizes = ["--rows", "3000", "--themes", "20", "--questions", "5", "--turns", "20", "--exact-rows-max", "400"]
    command = [sys.executable, BENCHMARKS / "scale.py", *sizes, "--vectors", "vectors.npz", "--length", "96"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sum(step["seconds"] for step in found["load"]) > 0
    assert {row["theme"]: row["rows"] for row in found["recall"]}["all"] == 3000
    assert "theme's own index" in [plan for row in found["tuned"] for plan in row["plans"]]
    assert [row["lacking"] for row in found["insert"]] == [0, 0]
    assert all(step["ended"] for step in found["rebuild"] if step["name"] in ("reindex", "vacuum"))
