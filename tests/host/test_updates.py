"""What is under a home is replaced: memory works afterwards, or `watch` says what to type, and then it does."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import ModelEndpoint
from hostrig.rows import Rows
from loopback import Endpoint
from waiting import wait_for

if TYPE_CHECKING:
    from conftest import Host

pytestmark = pytest.mark.slow

INSTALL_S_MAX = 300
DRIVERS = ("psycopg", "pgvector")


@pytest.fixture
def rows(database: str) -> Rows:
    return Rows(database)


@pytest.fixture
def hermes(database: str, model: ModelEndpoint, embedder: Endpoint, tmp_path: Path) -> Callable[..., Hermes]:
    """`hermes(host, folder)`: the host on the home in a folder, which is set up once."""

    def make(host: Host, folder: str = "user") -> Hermes:
        settings = {"dsn": database, "embed_url": embedder.url, "embed_model": "bag-of-words"}
        hermes = Hermes(host.name, host.python, tmp_path / folder, model, settings)
        return hermes if (hermes.home / "config.yaml").exists() else hermes.set_up()

    return make


@pytest.fixture
def watcher(host: Host, source: Path, make_environment: Callable[..., Host], tmp_path: Path) -> Path:
    """`hermes-pgvector` in an environment of its own, as cron runs it."""
    there = make_environment(host, tmp_path / "watcher")
    install(there, source)
    return there.python.with_name("hermes-pgvector")


def install(host: Host, source: Path) -> None:
    """pip install, with the dependencies that the host has not."""
    command = [host.python, "-m", "pip", "install", "--disable-pip-version-check", source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr


def watch(watcher: Path, hermes: Hermes) -> list[dict[str, Any]]:
    """What `watch` finds, from outside of the host's environment."""
    command = [watcher, "watch", "--json", "--settle", "0", "--hermes", hermes.python.with_name("hermes")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=hermes.environment(), cwd="/")
    assert done.returncode in (0, 3), done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    assert bool(found) == (done.returncode == 3)
    return found


def type_in(remedy: str, hermes: Hermes) -> None:
    """Type what a remedy says, in the environment of the host."""
    for command in remedy.split("; then: "):
        environment = hermes.environment()
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=INSTALL_S_MAX, env=environment, cwd="/"
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def talk(hermes: Hermes, about: str) -> str:
    prompt = f"Please keep in mind what I tell you about the {about} of our house"
    hermes.ask(prompt)
    return prompt


def stored(rows: Rows) -> list[str]:
    return [turn.content for turn in rows.turns() if turn.role == "user"]


def assert_works(hermes: Hermes, model: ModelEndpoint, rows: Rows, watcher: Path, before: str) -> None:
    """A turn is stored, an earlier one is recalled, and `watch` is quiet."""
    prompt = talk(hermes, "cellar")
    rows.wait(lambda _: prompt in stored(rows))
    assert any(before in recalled for recalled in model.requests[-1].recalled)
    assert watch(watcher, hermes) == []


@one_server
@pytest.mark.parametrize("upgraded", [False, True], ids=["rebuilt", "upgraded"])
def test_after_the_environment_of_the_host_was_made_anew_watch_says_what_to_type(
    upgraded: bool,
    host: Host,
    newer_host: Host,
    source: Path,
    watcher: Path,
    make_environment: Callable[..., Host],
    hermes: Callable[..., Hermes],
    model: ModelEndpoint,
    rows: Rows,
    tmp_path: Path,
) -> None:
    if upgraded and host.name == "b":
        pytest.skip("there is no newer host")
    before = make_environment(host, tmp_path / "venv")
    install(before, source)
    said = talk(hermes(before), "attic")
    rows.wait(lambda _: said in stored(rows))
    shutil.rmtree(tmp_path / "venv")
    after = hermes(make_environment(newer_host if upgraded else host, tmp_path / "venv"))
    unheard = talk(after, "garden")
    (found,) = watch(watcher, after)
    assert found["reason"] == "plugin"
    assert "broken link" in found["found"]
    type_in(found["remedy"], after)
    assert_works(after, model, rows, watcher, said)
    assert unheard not in stored(rows)


@one_server
def test_after_the_drivers_are_gone_watch_names_them(
    host: Host,
    source: Path,
    watcher: Path,
    make_environment: Callable[..., Host],
    hermes: Callable[..., Hermes],
    model: ModelEndpoint,
    rows: Rows,
    tmp_path: Path,
) -> None:
    before = make_environment(host, tmp_path / "venv")
    install(before, source)
    here = hermes(before)
    place = here.home / "plugins" / "pgvector"
    place.unlink()
    # As `hermes plugins install` leaves it.
    shutil.copytree(source / "pgvector", place)
    said = talk(here, "attic")
    rows.wait(lambda _: said in stored(rows))
    shutil.rmtree(tmp_path / "venv")
    after = hermes(make_environment(host, tmp_path / "venv", without=DRIVERS))
    talk(after, "garden")
    (found,) = watch(watcher, after)
    assert found["reason"] == "package"
    assert "psycopg" in found["found"]
    shown = after.run("memory", "status")
    assert "available ✓" not in shown.stdout
    type_in(found["remedy"], after)
    assert_works(after, model, rows, watcher, said)


@one_server
def test_in_a_new_container_with_the_old_home_the_memory_works_or_watch_says_what_to_type(
    host: Host,
    source: Path,
    watcher: Path,
    make_environment: Callable[..., Host],
    hermes: Callable[..., Hermes],
    model: ModelEndpoint,
    rows: Rows,
    tmp_path: Path,
) -> None:
    before = make_environment(host, tmp_path / "old-image")
    install(before, source)
    old = hermes(before)
    said = talk(old, "attic")
    rows.wait(lambda _: said in stored(rows))
    shutil.move(tmp_path / "user", tmp_path / "volume")
    shutil.rmtree(tmp_path / "old-image")
    image = make_environment(host, tmp_path / "new-image")
    install(image, source)
    new = hermes(image, "volume")
    found = watch(watcher, new)
    if found:
        assert [one["reason"] for one in found] == ["plugin"]
        assert found[0]["remedy"] == "hermes-pgvector install"
        type_in(found[0]["remedy"], new)
    assert_works(new, model, rows, watcher, said)


@pytest.mark.main_host("a")
def test_an_embedded_database_that_was_lost_with_its_container_is_told(
    host: Host, source: Path, model: ModelEndpoint, embedder: Endpoint, outdoors: Path, watcher: Path
) -> None:
    data = outdoors / "image" / "data"
    settings = {"embed_url": embedder.url, "embed_model": "bag-of-words", "data_dir": str(data)}
    hermes = Hermes(host.name, host.python, outdoors / "user", model, settings).set_up()
    try:
        talk(hermes, "attic")
        assert watch(watcher, hermes) == []
        hermes.run("server", "stop", program="hermes-pgvector")
        shutil.rmtree(outdoors / "image")
        with hermes.gateway() as gateway:
            gateway.ask("Please keep in mind what I tell you about the garden of our house")
            wait_for(lambda: any("made anew" in line for line in hermes.complaints()))
            gateway.stop()
        (found,) = watch(watcher, hermes)
        assert found["reason"] == "data"
        assert "made anew" in found["found"]
        shown = hermes.run("doctor", program="hermes-pgvector").stdout
        assert "data folder" in shown
        type_in(found["remedy"].partition("; to go on with the new one: ")[2], hermes)
        assert watch(watcher, hermes) == []
    finally:
        hermes.run("server", "stop", "--mode", "immediate", program="hermes-pgvector")


@one_server
@pytest.mark.parametrize("linked", [False, True], ids=["installed", "linked"])
def test_another_project_of_the_same_name_is_named_and_replaced(
    linked: bool,
    host: Host,
    source: Path,
    watcher: Path,
    make_environment: Callable[..., Host],
    hermes: Callable[..., Hermes],
    model: ModelEndpoint,
    rows: Rows,
    tmp_path: Path,
) -> None:
    before = make_environment(host, tmp_path / "venv")
    install(before, source)
    here = hermes(before)
    said = talk(here, "attic")
    rows.wait(lambda _: said in stored(rows))
    install(before, namesake(tmp_path))
    if linked:
        (package,) = before.python.parents[1].glob("lib/python*/site-packages/hermes_pgvector")
        place = here.home / "plugins" / "pgvector"
        place.unlink()
        place.symlink_to(package)
    (found,) = watch(watcher, here)
    assert found["reason"] == "package"
    type_in(found["remedy"], here)
    assert_works(here, model, rows, watcher, said)


def namesake(folder: Path) -> Path:
    """A project with the name, the command and the entry point of the other one, as far as they matter here."""
    project = folder / "namesake"
    (project / "hermes_pgvector").mkdir(parents=True)
    (project / "pyproject.toml").write_text(
        '[project]\nname = "hermes-memory-pgvector"\nversion = "1.0.0"\n'
        '[project.scripts]\nhermes-pgvector = "hermes_pgvector:main"\n'
        '[project.entry-points."hermes_agent.memory_providers"]\npgvector = "hermes_pgvector"\n'
        '[tool.setuptools]\npackages = ["hermes_pgvector"]\n'
        '[tool.setuptools.package-data]\nhermes_pgvector = ["plugin.yaml"]\n'
    )
    (project / "hermes_pgvector" / "plugin.yaml").write_text("name: pgvector\nversion: 1.0.0\ndescription: Other\n")
    (project / "hermes_pgvector" / "__init__.py").write_text(
        "from agent.memory_provider import MemoryProvider\n"
        "class Other(MemoryProvider):\n"
        "    name = 'pgvector'\n"
        "    def is_available(self): return True\n"
        "    def initialize(self, session_id, **kwargs): pass\n"
        "    def get_tool_schemas(self): return []\n"
        "    def handle_tool_call(self, name, args, **kwargs): return '{}'\n"
        "def register(ctx): ctx.register_memory_provider(Other())\n"
    )
    return project
