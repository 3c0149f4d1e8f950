"""Both hosts load the package in every way it can be given to them, and a turn that they hand over is stored."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import psycopg
import pytest

if TYPE_CHECKING:
    from conftest import Host

ROOT = Path(__file__).resolve().parents[2]
# The loaders have nothing to do with the version of Postgres: one is enough.
SERVER = "dsn" if os.environ.get("PG_TEST_DSN") else os.environ.get("PG_TEST_VERSIONS", "18").split(",")[0]
pytestmark = pytest.mark.parametrize("server", [SERVER], indirect=True)

TURN = ["Which port does the staging database listen on these days?", "It listens on 5433, behind pgbouncer on 6432."]


def load(host: Host, home: Path, database: str) -> dict[str, Any]:
    return host.script("load_and_keep_a_turn.py", *TURN, home=home, dsn=database)


def assert_works(answer: dict[str, Any], database: str, package: Path) -> None:
    """The host has a whole provider, from this copy of the package alone, and its turn is in the database."""
    assert answer["loaded"], answer
    assert answer["complaints"] == []
    assert (answer["class"], answer["is_a_provider"]) == ("PgvectorMemoryProvider", True)
    assert (answer["available"], answer["reason"]) == (True, "")
    assert answer["tools"] == ["recall_memory", "recall_conversation"]
    assert answer["discovered"] == [True]
    assert answer["copies"] == [str(package.resolve())]
    assert turns(database) == TURN


def turns(database: str) -> list[str]:
    with psycopg.connect(database) as connection:
        return [row[0] for row in connection.execute("SELECT content FROM conversations ORDER BY id")]


def install(host: Host, home: Path) -> None:
    done = host.run("hermes-pgvector", "install", home=home)
    assert done.returncode == 0, done.stderr


def unpacked(host: Host) -> Path:
    (package,) = host.python.parents[1].glob("lib/python*/site-packages/hermes_memory_pgvector")
    return package


def test_a_link_to_an_editable_installation_is_loaded(host: Host, home: Path, database: str) -> None:
    install(host, home)
    assert_works(load(host, home, database), database, ROOT / "pgvector")


def test_a_link_to_a_wheel_is_loaded(wheel_host: Host, home: Path, database: str) -> None:
    install(wheel_host, home)
    assert_works(load(wheel_host, home, database), database, unpacked(wheel_host))


def test_a_bare_copy_of_the_folder_is_loaded(bare_host: Host, home: Path, database: str) -> None:
    copy = home / "plugins" / "pgvector"
    shutil.copytree(ROOT / "pgvector", copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert_works(load(bare_host, home, database), database, copy)


def test_an_editable_installation_alone_is_found_where_entry_points_are(host: Host, home: Path, database: str) -> None:
    answer = load(host, home, database)
    if host.name == "a":
        assert not answer["loaded"], "host A finds entry points now: `hermes-pgvector install` may not be needed there"
    else:
        assert_works(answer, database, ROOT / "pgvector")


def test_a_wheel_alone_is_found_where_entry_points_are(wheel_host: Host, home: Path, database: str) -> None:
    answer = load(wheel_host, home, database)
    if wheel_host.name == "a":
        assert not answer["loaded"], "host A finds entry points now: `hermes-pgvector install` may not be needed there"
    else:
        assert_works(answer, database, unpacked(wheel_host))


def test_without_the_package_the_host_finds_nothing(bare_host: Host, home: Path, database: str) -> None:
    assert not load(bare_host, home, database)["loaded"]


def test_the_wheel_brings_the_files_of_the_package_and_its_migrations(
    wheel_host: Host, wheel: Path, home: Path, empty_database: str
) -> None:
    files = {path.relative_to(ROOT / "pgvector").as_posix() for path in (ROOT / "pgvector").rglob("*.*")}
    with ZipFile(wheel) as archive:
        packed = {name.removeprefix("hermes_memory_pgvector/") for name in archive.namelist()}
    assert {name for name in files - packed if not name.endswith(".pyc")} == {"after-install.md"}
    assert {name for name in packed - files if not name.startswith(("migrations/", "hermes_memory_pgvector-"))} == set()
    done = wheel_host.run("hermes-pgvector", "migrate", "--dsn", empty_database, "--dimensions", "384", home=home)
    assert done.returncode == 0, done.stderr
    assert turns(empty_database) == []


def test_the_host_shows_the_memory_and_has_a_command_for_it(host: Host, home: Path, database: str) -> None:
    install(host, home)
    shown = host.run("hermes", "memory", "status", home=home, dsn=database)
    assert shown.returncode == 0, shown.stderr
    assert "available ✓" in shown.stdout
    asked = host.run("hermes", "pgvector", "status", home=home, dsn=database)
    assert asked.returncode == 0, asked.stderr
    assert "Spool" in asked.stdout


@pytest.mark.parametrize("host", ["b"], indirect=True)
def test_it_works_in_the_plugin_process_of_the_host_that_has_one(host: Host, home: Path, database: str) -> None:
    install(host, home)
    with (home / "config.yaml").open("a") as config:
        config.write("plugins:\n  isolation: host\n")
    answer = load(host, home, database)
    assert answer["loaded"], answer
    assert (answer["available"], answer["copies"]) == (True, [])
    assert turns(database) == TURN
