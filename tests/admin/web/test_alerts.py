"""The alert rules of docs/ on series: each fires in its case, alone, and none while all is well."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from commandline import hermes_pgvector
from prometheus_client.parser import text_string_to_metric_families

from hermes_memory_pgvector.mirror.home import Home

RULES = Path(__file__).resolve().parents[3] / "docs" / "alerts.yml"
PREFIX = "hermes_pgvector_"


@dataclass
class Case:
    """Series by metric and label, in Prometheus' notation for tests, in the place of those of a sound home.

    Without any, no metrics arrive. `labels` are those that the alert takes over.
    """

    series: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)


CASES = {
    "DatabaseUnusable": Case({"up": "0"}),
    "MetricsMissing": Case({}),
    "EventsWait": Case({"spool_oldest_event_timestamp_seconds": "0"}),
    "ProcessStuck": Case({'processes{state="stuck"}': "1"}, {"state": "stuck"}),
    "ProcessFailing": Case({'processes{state="failing"}': "2"}, {"state": "failing"}),
    "EventsRefused": Case({'process_events_total{outcome="refused"}': "0+3"}),
    "DeadLetters": Case({"dead_letters": "1"}),
    "EmbedderFailing": Case({"embedder_failing": "1"}),
    "VectorsMissing": Case({'rows_without_vector{kind="entries"}': "400", 'rows_without_vector{kind="turns"}': "700"}),
    "DatabaseSlow": Case({"database_answer_seconds": "1.5"}),
    "WritesPending": Case({"pending_writes": "2"}),
}


@pytest.fixture
def sound(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The series of a home in which all is well, as the command prints them; events wait for a moment only."""
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    home, series = Home(tmp_path / "home").id, {}
    assert home
    for family in text_string_to_metric_families(hermes_pgvector("--home", str(tmp_path / "home"), "metrics").out):
        for sample in family.samples:
            labels = ", ".join(f'{name}="{value}"' for name, value in sample.labels.items())
            series[f"{sample.name}{{{labels}}}"] = f"{sample.value:g}"
    return {
        **series,
        f'{PREFIX}spool_oldest_event_timestamp_seconds{{home="{home}"}}': "0+60",
        f'{PREFIX}process_events_total{{home="{home}", outcome="refused"}}': "3",
    }


def rules() -> dict[str, Any]:
    found = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    return {rule["alert"].removeprefix("HermesPgvector"): rule for rule in found}


def with_case(sound: dict[str, str], case: Case) -> tuple[dict[str, str], str]:
    """The series of a case, and their home."""
    if not case.series:
        return {}, ""
    home = next(iter(sound)).partition('home="')[2].partition('"')[0]
    series = dict(sound)
    for name, values in case.series.items():
        metric, _, label = name.partition("{")
        labels = f'home="{home}"' + (f", {label}" if label else "}")
        series[f"{PREFIX}{metric}{{{labels}"] = values
    return series, home


def minutes(span: str) -> int:
    return int(span[:-1]) * {"m": 1, "h": 60, "d": 24 * 60}[span[-1]]


def checks(moment: int, firing: Iterable[str], labels: dict[str, str]) -> list[dict[str, Any]]:
    """What every alert should do at a minute."""
    found = []
    for name, rule in rules().items():
        expected = {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": rule["annotations"]}
        found.append(
            {"eval_time": f"{moment}m", "alertname": rule["alert"], "exp_alerts": [expected] if name in firing else []}
        )
    return found


def promtool(folder: Path, series: dict[str, str], expected: list[dict[str, Any]]) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    last = max(int(check["eval_time"][:-1]) for check in expected)
    given = [
        {"series": name, "values": f"{values}x{last}" if "+" in values else f"{values}+0x{last}"}
        for name, values in series.items()
    ]
    test = {"interval": "1m", "input_series": given, "alert_rule_test": expected}
    path = folder / "alerts.test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(
        [program, "test", "rules", str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert CASES.keys() == rules().keys()


def test_no_alert_fires_while_all_is_well(sound: dict[str, str], tmp_path: Path) -> None:
    expected = [check for moment in (0, 5, 60, 180) for check in checks(moment, (), {})]
    promtool(tmp_path, sound, expected)


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_in_its_case_and_no_other_does(sound: dict[str, str], tmp_path: Path, name: str) -> None:
    case, rule = CASES[name], rules()[name]
    series, home = with_case(sound, case)
    labels = {**({"home": home} if home else {}), **case.labels}
    wait = minutes(rule.get("for", "0m"))
    # Events have waited for ten minutes only then; a rate needs two samples.
    late = wait + 15
    expected = checks(late, [name], labels) + (checks(wait - 1, [], {}) if wait else [])
    promtool(tmp_path, series, expected)
