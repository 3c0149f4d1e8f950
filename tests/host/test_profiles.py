"""The profile of `hermes profile use`: the commands use the home that the host's own command uses."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from commandline import hermes_pgvector
from hostrig.hermes import Hermes
from hostrig.model import ModelEndpoint

from hermes_memory_pgvector import cli
from hermes_memory_pgvector.errors import SettingsError
from hermes_memory_pgvector.hosts import environment
from hermes_memory_pgvector.outbox.pending_writes import PendingWrites
from hermes_memory_pgvector.settings import Settings

if TYPE_CHECKING:
    from conftest import Host

IMPORTED_FROM = {"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}
# What hosts set in a process that a supervisor has started for one profile. The second one is of host B alone.
SUPERVISED = {"a": ["HERMES_S6_SUPERVISED_CHILD"], "b": ["HERMES_S6_SUPERVISED_CHILD", "HERMES_SUPERVISED_CHILD"]}


def made(root: Path, active: str | None) -> Path:
    """A folder with two profiles, of which one is in use."""
    for profile in ("work", "garden"):
        (home := root / "profiles" / profile).mkdir(parents=True, exist_ok=True)
        (home / "config.yaml").write_text("memory: {provider: builtin}\n")
    (root / "config.yaml").write_text("memory: {provider: builtin}\n")
    (root / "active_profile").unlink(missing_ok=True)
    if active is not None:
        (root / "active_profile").write_text(active)
    return root


@pytest.mark.parametrize("active", [None, "", "default\n", "work\n", "gone\n", "../profiles/work\n"])
def test_the_home_is_the_one_that_the_host_uses(host: Host, tmp_path: Path, active: str | None) -> None:
    usual, own = made(tmp_path / ".hermes", active), made(tmp_path / "data", active)
    homes = ["", str(usual), str(usual / "profiles" / "garden"), str(own), str(own / "profiles" / "garden")]
    environments = [{"HERMES_HOME": home} for home in homes]
    environments += [{"HERMES_HOME": str(own), name: "1"} for name in SUPERVISED[host.name]]
    found = host.script("homes_in_use.py", json.dumps(environments), home=tmp_path, **IMPORTED_FROM)
    assert [each["ours"] for each in found] == [each["theirs"] for each in found]
    if active == "work\n":
        work = [str(root / "profiles" / "work") for root in (usual, usual, own)]
        assert [found[0]["ours"], found[1]["ours"], found[3]["ours"]] == work


def test_from_another_environment_it_is_the_same_home(tmp_path: Path) -> None:
    root = made(tmp_path / ".hermes", "work\n")

    def home_of(*arguments: str, **more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "hermes_memory_pgvector", "status", "--json", *arguments],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **IMPORTED_FROM, **more},
            capture_output=True, text=True, timeout=60, cwd="/",
        )  # fmt: skip
        return str(json.loads(done.stdout)["home"]) if done.stdout else done.stderr

    work = root / "profiles" / "work"
    assert home_of() == home_of(HERMES_HOME=str(root)) == str(work)
    assert home_of("--home", str(root)) == home_of(HERMES_SUPERVISED_CHILD="1") == str(root)
    assert home_of(HERMES_HOME=str(root / "profiles" / "garden")) == str(root / "profiles" / "garden")
    made(root, "gone\n")
    assert "the profile 'gone', which" in (refused := home_of())
    assert refused.count("\n") == 1


def test_the_steps_of_the_readme_set_up_the_profile_that_is_in_use(
    host: Host, model: ModelEndpoint, outdoors: Path
) -> None:
    hermes = Hermes(host.name, host.python, outdoors / "user", model).without_memory()
    for step in (("profile", "create", "work", "--no-alias"), ("profile", "use", "work")):
        assert (done := hermes.run(*step)).returncode == 0, done.stdout + done.stderr
    python = hermes.python.with_name("python")
    installed = hermes.run("-P", "-m", "hermes_memory_pgvector", "install", program=python.name, **IMPORTED_FROM)
    assert installed.returncode == 0, installed.stderr
    assert (done := hermes.run("config", "set", "memory.provider", "pgvector")).returncode == 0, done.stderr
    shown = hermes.run("memory", "status", **IMPORTED_FROM).stdout
    assert "Provider:  pgvector" in shown
    assert "available ✓" in shown
    assert yaml.safe_load((hermes.home / "config.yaml").read_text()).get("memory", {}).get("provider") != "pgvector"


@pytest.mark.main_host("a")
def test_the_remedies_for_a_profile_can_be_typed_in_the_shell_of_another(
    host: Host, model: ModelEndpoint, outdoors: Path
) -> None:
    settings = {"no_setting": 1, "dsn": "host=127.0.0.1 port=9"}
    hermes = Hermes(host.name, host.python, outdoors / "user", model, settings).set_up()
    work = hermes.named("work")
    remedy = "settings list --all"
    of_work = f"hermes-pgvector --home {work.home} {remedy}"
    assert of_work in hermes.run("-p", "work", "pgvector", "doctor", COLUMNS="500", **IMPORTED_FROM).stdout
    assert f": hermes-pgvector {remedy}" in hermes.run("pgvector", "doctor", COLUMNS="500", **IMPORTED_FROM).stdout
    assert hermes.run("profile", "use", "work").returncode == 0
    assert f": hermes-pgvector {remedy}" in hermes.run("pgvector", "doctor", COLUMNS="500", **IMPORTED_FROM).stdout
    shown = hermes.run("-p", "default", "pgvector", "doctor", COLUMNS="500", **IMPORTED_FROM).stdout
    assert f"hermes-pgvector --home {hermes.home} {remedy}" in shown


def test_the_remedies_name_the_home_where_a_command_without_it_would_use_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", "host=127.0.0.1 port=9")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("COLUMNS", "500")
    for home in (tmp_path / "own", tmp_path / "a home"):
        home.mkdir()
    own = hermes_pgvector("doctor").out
    assert "→ hermes-pgvector install\n" in own
    assert "→ hermes config set memory.provider pgvector\n" in own
    other = hermes_pgvector("doctor", "--home", str(tmp_path / "a home")).out
    named = f"→ hermes-pgvector --home '{tmp_path}/a home'"
    assert f"{named} install\n" in other
    assert f"{named} settings on\n" in other
    watched = hermes_pgvector("watch", "--home", str(tmp_path / "a home")).err
    assert f"to do: {named.removeprefix('→ ')} settings on\n" in watched


def test_the_next_steps_name_the_home_and_the_texts_of_others_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", "host=127.0.0.1 port=9")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("COLUMNS", "500")
    for home in (tmp_path / "own", tmp_path / "other"):
        home.mkdir()
    named = f"hermes-pgvector --home {tmp_path}/other"
    write = "To take it back: hermes-pgvector undo 3"
    waiting = PendingWrites(tmp_path / "other" / "pgvector", Settings())
    waiting.add("remember", {}, theme="ops", session_id="", marks={}, preview=write)

    def other(*arguments: str) -> str:
        return hermes_pgvector("--home", str(tmp_path / "other"), *arguments).shown

    assert "; for more: hermes-pgvector doctor\n" in hermes_pgvector("search", "port").err
    assert f"; for more: {named} doctor\n" in other("search", "port")
    assert f"next: {named} pending approve ID" in (listed := other("pending", "list"))
    assert f"; see: {named} pending list\n" in other("status")
    assert f"next: {named} settings on\n" in other("install")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert write in listed
    assert f"\n{write}\n" in other("pending", "reject", "--all")


def test_a_command_that_fails_does_not_say_to_run_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("PATH", "")
    refused = hermes_pgvector("settings", "on", "--home", str(tmp_path))
    assert (refused.code, refused.err.count("hermes-pgvector")) == (1, 1)
    assert f"set it to 'pgvector' in {tmp_path / 'config.yaml'}\n" in refused.err


def test_the_status_of_a_server_says_whether_there_is_one_for_this_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "own"))
    monkeypatch.delenv("HERMES_PGVECTOR_DSN", raising=False)
    asked = ("server", "status", "--home", str(tmp_path))
    assert hermes_pgvector(*asked).out.endswith(f"or: hermes-pgvector --home {tmp_path} server start\n")
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", "postgresql://agent:hunter2@db.example/memory")
    shown = hermes_pgvector(*asked)
    assert (shown.code, shown.out) == (1, "this home uses agent@db.example:5432/memory, no embedded server\n")


def test_a_person_at_a_terminal_is_told_of_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = made(tmp_path, "work\n")
    monkeypatch.setenv("HERMES_HOME", str(root))
    for terminal, told in ((True, f"profile work is in use: {root / 'profiles' / 'work'}\n"), (False, "")):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        assert cli.main(["version"]) == 0
        assert capsys.readouterr().err == told


def test_a_user_without_a_home_folder_has_the_home_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", missing)
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    assert environment.shell_home() == (tmp_path, "")


def test_a_profile_that_is_in_use_and_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "\x1b[31mgone")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match=r"the profile '\\x1b\[31mgone', which .* run: hermes profile use default"):
        environment.shell_home()
