"""Metrics of a home, the text file, and what docs/ make of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from commandline import Outcome, hermes_pgvector
from prometheus_client.parser import text_string_to_metric_families

from hermes_memory_pgvector.admin.web.metrics import METRICS, PREFIX

ROOT = Path(__file__).resolve().parents[3]
NAME = re.compile(rf"\b{PREFIX}[a-z_]+")
THEME = "launch-of-the-secret-rocket"
NAMES = {f"{PREFIX}{name}{'_total' * (kind == 'counter')}" for name, (kind, _) in METRICS.items()}


@pytest.fixture
def command(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_MODEL", "test")
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path), *arguments)


def samples(text: str) -> dict[tuple[str, str], float]:
    """Values by the name and the label that tells series of one name apart."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            other = next((value for name, value in sample.labels.items() if name in ("kind", "state", "outcome")), "")
            found[sample.name, other] = sample.value
    return found


def test_the_metrics_are_those_of_the_database_and_no_label_has_a_name_of_a_user(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database) as connection:
        for text in ("port 5433", "a second one"):
            connection.execute(
                "insert into memory_entries (agent_identity, target, content) values (%s, 'memory', %s)", [THEME, text]
            )
        connection.execute(
            "insert into conversations (agent_identity, session_id, role, content) values (%s, 's', 'user', 'hello')",
            [THEME],
        )
    printed = command("metrics")
    assert (printed.code, printed.err) == (0, "")
    found = samples(printed.out)
    assert (found[f"{PREFIX}up", ""], found[f"{PREFIX}themes", ""]) == (1, 1)
    assert (found[f"{PREFIX}rows", "entries"], found[f"{PREFIX}rows", "turns"]) == (2, 1)
    assert found[f"{PREFIX}rows_without_vector", "entries"] == 2
    assert {name for name, _ in found} <= NAMES
    assert THEME not in printed.out
    counted = command("status", "--json").document
    assert counted["rows"]["entries"] == found[f"{PREFIX}rows", "entries"]
    assert counted["spool"]["events"] == found[f"{PREFIX}spool_events", ""]


def test_what_waits_and_what_runs_is_in_the_metrics(command: Callable[..., Outcome], tmp_path: Path) -> None:
    assert command("add", "the valve sticks", "--theme", "garden").code in (0, 3)
    from hermes_memory_pgvector.runtime import acquire, release
    from hermes_memory_pgvector.settings import load

    runtime = acquire(load(tmp_path), tmp_path)
    try:
        runtime.make_files()
        assert runtime.wait_ready(30)
        assert runtime.writer.flush(30)
        text = command("metrics").out
    finally:
        release(runtime)
    found = samples(text)
    assert sum(found[f"{PREFIX}processes", state] for state in ("well", "failing", "stuck")) == 1
    assert (f"{PREFIX}spool_events", "") in found
    assert samples(command("metrics").out)[f"{PREFIX}processes", "well"] == 0, "the process has ended"


def test_a_database_that_is_away_is_told_and_the_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", f"postgresql:///none?host={tmp_path}")
    file = tmp_path / "state.prom"
    file.write_text("before")
    outcome = hermes_pgvector("--home", str(tmp_path), "metrics", "--textfile", str(file))
    assert (outcome.code, outcome.out) == (3, "")
    assert str(tmp_path) in outcome.err
    found = samples(file.read_text())
    assert found[f"{PREFIX}up", ""] == 0
    assert (f"{PREFIX}rows", "entries") not in found
    assert file.stat().st_mode & 0o777 == 0o644
    assert not list(tmp_path.glob("*.tmp*"))


def test_json_has_the_samples_of_the_text(command: Callable[..., Outcome]) -> None:
    document = command("metrics", "--json").document
    assert document["problem"] == ""
    assert {sample["name"] for sample in document["metrics"]} == {name for name, _ in samples(command("metrics").out)}


def test_a_file_that_cannot_be_written_is_an_error(command: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = command("metrics", "--textfile", str(tmp_path / "none" / "state.prom"))
    assert outcome.code == 1
    assert "cannot be written" in outcome.err


# docs/


def expressions() -> list[str]:
    rules = yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text())
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((ROOT / "docs" / "dashboard.json").read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [*alerts, *panels, *(each["query"]["query"] for each in dashboard["templating"]["list"][1:])]


def test_alerts_and_dashboard_use_metrics_that_exist() -> None:
    named = [set(NAME.findall(expression)) for expression in expressions()]
    assert all(named)
    assert set.union(*named) <= NAMES


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    rules: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text())
    for rule in rules["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


def promtool(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    return subprocess.run([program, *arguments], input=given, capture_output=True, text=True, timeout=60)


def test_promtool_accepts_the_rules() -> None:
    checked = promtool("check", "rules", str(ROOT / "docs" / "alerts.yml"))
    assert checked.returncode == 0, checked.stderr + checked.stdout


def test_promtool_finds_nothing_to_improve_in_the_metrics(command: Callable[..., Outcome]) -> None:
    checked = promtool("check", "metrics", given=command("metrics").out)
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stderr


def test_promtool_reads_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    plain = [
        query.replace("$home", ".*").replace("$__rate_interval", "5m")
        for query in expressions()
        if not query.startswith("label_values")
    ]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(plain)]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = promtool("check", "rules", str(path))
    assert checked.returncode == 0, checked.stderr + checked.stdout
