"""`hermes-pgvector relieve`: what it prints, what it changes, and what it leaves to the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector

NOTES = [
    "The staging database listens on port 5433 of alpha; its configuration is in /etc/pg/staging.conf.",
    "Please read the documentation of the payment service before changing its authentication.",
    "The staging database listens on port 5433 of alpha; its configuration is in /etc/pg/staging.conf!",
    *(f"Server {name} is restarted on the first Monday of each month by the night shift." for name in "abcdefgh"),
    "Lunch is at noon.",
]


@pytest.fixture
def command(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path), *arguments)


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    path = tmp_path / "memories" / "MEMORY.md"
    path.parent.mkdir()
    path.write_text("\n§\n".join(NOTES))
    (tmp_path / "config.yaml").write_text("memory: {memory_char_limit: 1200}\n")
    return path


def contents(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        return {content for (content,) in connection.execute("select content from memory_entries")}


def test_without_yes_it_shows_a_plan_that_fits_a_terminal_and_changes_nothing(
    command: Callable[..., Outcome], memory: Path, database: str
) -> None:
    before = memory.read_text()
    shown = command("relieve")
    assert shown.code == 0
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "MEMORY.md: 932 of 1,200 characters (78 %) → 485 (41 %)" in shown.out
    assert "to entries" in shown.out
    assert "nearly the same as: The staging database" in " ".join(shown.out.split())
    assert "shorter: srv c is restarted" in " ".join(shown.out.split())
    assert "nothing is changed yet; to do it: hermes-pgvector relieve --yes" in shown.err
    assert memory.read_text() == before
    assert contents(database) == set()


def test_with_yes_the_entries_move_and_no_word_of_the_user_is_changed(
    command: Callable[..., Outcome], memory: Path, database: str
) -> None:
    planned = command("relieve", "--json").document["files"][0]
    done = command("relieve", "--yes", "--json").document
    assert done["dry_run"] is False
    (file,) = done["files"]
    assert file["changed"]
    assert [move["entry"] for move in file["moves"]] == [move["entry"] for move in planned["moves"]]
    left = memory.read_text().split("\n§\n")
    assert left == [note for note in NOTES if note not in contents(database)]
    assert len(memory.read_text()) == file["chars_after"] <= 0.45 * 1200
    assert Path(file["backup"]).read_text() == "\n§\n".join(NOTES)
    again = command("relieve", "--yes")
    assert "it is relieved above 55 %, down to 45 %" in " ".join(again.out.split())
    assert memory.read_text().split("\n§\n") == left


def test_what_left_the_file_is_found_by_search(command: Callable[..., Outcome], memory: Path) -> None:
    (file,) = command("relieve", "--yes", "--json").document["files"]
    moved = file["moves"][0]["entry"]
    found = command("search", moved, "--kind", "memory", "--json")
    assert moved in found.out


def test_the_threshold_can_be_given(command: Callable[..., Outcome], memory: Path) -> None:
    assert command("relieve", "--above", "99", "--json").document["files"][0]["moves"] == []
    (file,) = command("relieve", "--above", "20", "--json").document["files"]
    assert file["chars_after"] <= 0.2 * 1200
    assert command("relieve", "--above", "0").code == 2


def test_a_home_without_files_says_so(command: Callable[..., Outcome], tmp_path: Path) -> None:
    """It may be mistyped."""
    for given in ((), ("--yes",)):
        shown = command("relieve", *given)
        assert (shown.code, shown.out.strip()) == (0, "there is no MEMORY.md or USER.md that the host uses")
        assert command("relieve", *given, "--json").document["files"] == []
    assert list(tmp_path.iterdir()) == []


def test_a_home_without_files_needs_no_database(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", "postgresql://127.0.0.1:1/none")
    monkeypatch.setenv("HERMES_PGVECTOR_CONNECT_TIMEOUT_S", "1")
    shown = command("relieve")
    assert (shown.code, shown.err) == (0, "")


def test_a_wrong_cap_is_named(command: Callable[..., Outcome], memory: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("memory: {memory_char_limit: many}\n")
    shown = command("relieve", "--yes")
    assert shown.code == 1
    assert "memory.memory_char_limit in config.yaml is 'many'; it must be a number above 0" in shown.err
    assert memory.read_text() == "\n§\n".join(NOTES)
