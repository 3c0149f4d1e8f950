"""settings: where values come from, changes of one home, copies for other profiles, and the theme of a folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commandline import Outcome, hermes_pgvector

from hermes_memory_pgvector.settings import Settings, load

Run = Callable[..., Outcome]
DSN = "postgresql://agent:hunter2@db.example:5432/memory"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    before = dict(os.environ)
    (tmp_path / "home").mkdir()
    yield tmp_path / "home"
    # A command puts the lines of `.env` into the environment.
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


@pytest.fixture
def run(home: Path) -> Run:
    return lambda *arguments: hermes_pgvector("--home", str(home), "--json", "settings", *arguments)


def places(run: Run) -> dict[str, str]:
    return {each["key"]: each["from"] for each in run("list").document}


def test_each_value_has_the_place_that_it_comes_from(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config.yaml").write_text(
        "memory: {pgvector: {prefetch_limit: 4}}\nplugins: {pgvector: {batch_max: 7, prefetch_limit: 1}}\n"
    )
    (home / ".env").write_text("HERMES_PGVECTOR_POOL_MAX=5\n")
    monkeypatch.setenv("HERMES_PGVECTOR_TOOLS", "all")
    assert run("set", "recall_limit_max", "70").code == 0
    assert places(run) == {
        "prefetch_limit": f"memory.pgvector in {home / 'config.yaml'}",
        "batch_max": "plugins.pgvector",
        "pool_max": str(home / ".env"),
        "tools": "HERMES_PGVECTOR_TOOLS",
        "recall_limit_max": str(home / "pgvector" / "config.json"),
    }
    everything = run("list", "--all").document
    assert [each["key"] for each in everything] == list(Settings.model_fields)
    assert {each["from"] for each in everything} > {"default"}


def test_no_password_is_shown(run: Run, home: Path) -> None:
    (home / ".env").write_text(
        f"HERMES_PGVECTOR_DSN={DSN}\nHERMES_PGVECTOR_RECALL_DSN={DSN.replace('db.', 'standby.')}\n"
        "HERMES_PGVECTOR_EMBED_URL=http://somebody:hunter2@127.0.0.1:9/v1?key=hunter2\n"
        "HERMES_PGVECTOR_RERANK_URL=http://somebody:hunter2@127.0.0.1:9/v1?key=hunter2\n"
    )
    shown = run("list").shown + run("get", "dsn").shown + hermes_pgvector("--home", str(home), "settings", "list").shown
    assert "agent@db.example:5432/memory" in shown
    assert "agent@standby.example:5432/memory" in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("prefetch_limit", "3", 3),
        ("embed_wait_s", "2", 2.0),
        ("sync_turns", "false", False),
        ("min_similarity", "0.5", 0.5),
        ("allowed_themes", '["billing", "söarch"]', ["billing", "söarch"]),
        ("cross_theme_recall", "all", "all"),
        ("theme_template", "project/{project}", "project/{project}"),
        ("keep", '[{"author": "owner", "action": "turns"}, {"action": "none"}]', None),
    ],
)
def test_a_value_that_is_set_is_the_one_that_sessions_use(
    run: Run, home: Path, key: str, text: str, value: Any
) -> None:
    done = run("set", key, text)
    assert done.code == 0, done.shown
    if value is not None:
        assert getattr(load(home), key) == value
    assert getattr(load(home), key) != getattr(Settings(), key)
    assert run("unset", key).document["from"] == "default"
    assert getattr(load(home), key) == getattr(Settings(), key)


def test_a_value_in_the_env_file_is_replaced(run: Run, home: Path) -> None:
    (home / ".env").write_text("OTHER=1\nHERMES_PGVECTOR_PREFETCH_LIMIT=2\n")
    assert run("set", "PREFETCH_LIMIT", "3").code == 0
    assert load(home).prefetch_limit == 3
    assert (home / ".env").read_text() == "OTHER=1\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("set", "prefetch_limit", "many"), 2, "prefetch_limit: must be a valid integer\n"),
        (("set", "prefetch_limit", "21"), 2, "prefetch_limit: must be less than or equal to 20\n"),
        (("set", "spool_fsync", "perhaps"), 2, "spool_fsync: must be true or false\n"),
        (("set", "tools", "some"), 2, "tools: must be 'recall', 'all' or 'facts'\n"),
        (("set", "allowed_themes", "billing,search"), 2, 'a valid list; as JSON, such as ["one", "two"]'),
        (("set", "theme_aliases", "a=b"), 2, 'as JSON, such as {"name": "value"}'),
        (("set", "keep", '[{"action": "none"}, {"authr": "owner", "action": "turns"}]'), 2, "keep, rule 2, authr: "),
        (("set", "prefetch_limt", "3"), 2, "did you mean prefetch_limit"),
        (("set", "dsn", DSN), 2, "hermes-pgvector setup"),
        (("set", "recall_dsn", DSN), 2, "write HERMES_PGVECTOR_RECALL_DSN into"),
        (("get", "zzz\x1b[31m"), 2, "is no setting"),
        (("copy", "--to", "nobody"), 2, "is no folder"),
        (("copy", "data_dir", "--to", "nobody"), 2, "belong to one home"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_changed(
    run: Run, home: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = run(*arguments)
    assert (done.code, said in done.err, "hunter2" in done.shown) == (code, True, False), done.shown
    assert not any(home.rglob("*"))


def test_a_value_that_is_not_valid_can_be_replaced_and_a_file_that_is_not_json_is_named(run: Run, home: Path) -> None:
    file = home / "pgvector" / "config.json"
    file.parent.mkdir()
    file.write_text('{"recall_mode": "tols"}')
    done = run("set", "recall_mode", "tools")
    assert (done.code, done.document["before"], "it was not valid; " in done.err) == (0, None, True)
    assert load(home).recall_mode == "tools"
    file.write_text('{"recall_mode": "tols", "pool_max": "many"}')
    refused = run("set", "recall_mode", "tools")
    assert (refused.code, f"pool_max in {file} is 'many': " in refused.err) == (1, True)
    file.write_text('{\n"recall_mode": "tools",\n}')
    assert "config.json cannot be read: JSONDecodeError in line 3; correct or delete" in run("list").err


def test_a_value_that_another_place_hides_is_refused(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config.yaml").write_text("memory: {pgvector: {prefetch_limit: 4}}\n")
    done = run("set", "prefetch_limit", "3")
    assert "run: hermes config set memory.pgvector.prefetch_limit" in done.err
    assert done.code == run("unset", "prefetch_limit").code == 1
    monkeypatch.setenv("HERMES_PGVECTOR_BATCH_MAX", "9")
    assert "HERMES_PGVECTOR_BATCH_MAX takes precedence" in run("set", "batch_max", "8").err
    assert not (home / "pgvector" / "config.json").exists()


def test_the_settings_of_a_home_are_copied_to_its_profiles(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = home / "profiles" / "ops"
    ops.mkdir(parents=True)
    variables = "HERMES_PGVECTOR_SPOOL_DIR=/var/spool/mine\nKEY=secret\n"
    (home / ".env").write_text(f"HERMES_PGVECTOR_DSN='{DSN}'\nHERMES_PGVECTOR_RECALL_DSN='{DSN}'\n{variables}")
    (ops / ".env").write_text("HERMES_PGVECTOR_BATCH_MAX=9\n")
    run("set", "tools", "all")
    done = run("copy", "--to", "ops", "--yes")
    assert done.code == 0, done.shown
    assert done.document == [{"home": str(ops), "changed": ["dsn", "recall_dsn", "tools"]}]
    copied = load(ops, {})
    assert copied.addresses == (DSN, DSN)
    assert (copied.tools, copied.batch_max, copied.spool_dir) == ("all", 9, "")
    assert "hunter2" not in done.shown + (ops / "pgvector" / "config.json").read_text()
    assert "KEY" not in (ops / ".env").read_text()
    again = run("copy", "--to", str(ops), "--yes")
    assert (again.document[0]["changed"], "nothing to copy" in again.err) == ([], True)
    assert run("copy", "--to", "default").code == 2
    from_ops = hermes_pgvector("--home", str(ops), "settings", "copy", "batch_max", "--to", "default", "--yes")
    assert (from_ops.code, load(home, {}).batch_max) == (0, 9)


def test_without_an_answer_nothing_is_copied(run: Run, home: Path) -> None:
    (home / "profiles" / "ops").mkdir(parents=True)
    run("set", "tools", "all")
    assert run("copy", "--to", "ops").code == 2
    assert load(home / "profiles" / "ops", {}).tools == "recall"


def test_a_folder_tells_its_project_and_theme(run: Run, home: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "shop"
    subprocess.run(["git", "init", "-q", checkout], check=True)
    inside = checkout / "src"
    inside.mkdir()
    assert run("project", str(inside)).document["project"] == "shop"
    run("set", "theme_template", "project/{project}")
    assert run("project", str(inside)).document["theme"] == "project/shop"
    named = run("project", str(inside), "--name", "Web Shop")
    assert named.document["theme"] == "project/web-shop"
    assert (checkout / ".hermes-memory-project").read_text() == "Web Shop\n"
    assert run("project", str(inside), "--name", "\n").code == 2
    assert run("project", str(tmp_path / "nowhere")).code == 2
