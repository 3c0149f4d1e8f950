from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from hermes_memory_pgvector import home as module
from hermes_memory_pgvector.aside import UNREADABLE
from hermes_memory_pgvector.home import Home


def in_processes(count: int, script: str, *arguments: str) -> list[str]:
    """Run a script in several processes at once and return what each printed."""
    prologue = "import sys\nfrom hermes_memory_pgvector.home import Home\nhome = Home(sys.argv[1])\n"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", prologue + textwrap.dedent(script), *arguments, str(number)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
        )
        for number in range(count)
    ]  # fmt: skip
    printed = [process.communicate(timeout=60)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0] * count
    return printed


def read_only(tmp_path: Path) -> Home:
    """A home in which nothing can be made, not even by root: its state folder's place is taken."""
    (tmp_path / "pgvector").write_text("a file")
    return Home(tmp_path)


def write_memory(home: Home, content: str | bytes, name: str = "MEMORY.md") -> None:
    path = home.path / "memories" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def key_of(home: Home) -> str:
    """The key by which persons' themes are named now, as hexadecimal digits."""
    return home.person_key.theme(lambda key: key.hex())


# --- identity and key


def test_a_home_keeps_its_id(tmp_path: Path) -> None:
    assert Home(tmp_path).id == Home(tmp_path).id != ""
    assert Home(tmp_path / "other").id != Home(tmp_path).id


def test_many_processes_that_begin_at_once_agree_on_the_id_and_the_key(tmp_path: Path) -> None:
    key = "home.person_key.theme(lambda key: key.hex())"
    printed = in_processes(5, f"print(home.id, {key})", str(tmp_path))
    assert len(set(printed)) == 1
    assert printed[0] == f"{Home(tmp_path).id} {key_of(Home(tmp_path))}"
    assert sorted(path.name for path in (tmp_path / "pgvector").iterdir()) == [
        "home_id", "person_key.names", "person_key.provisional"
    ]  # fmt: skip


def test_a_home_that_cannot_be_written_has_no_id_and_a_key_of_the_moment(tmp_path: Path) -> None:
    home = read_only(tmp_path)
    assert home.id == ""
    assert len(key_of(home)) == 64
    assert not home.set_aside("x", "reason", "raw")
    assert home.aside() == []
    home.remember("name", 1)
    assert home.recollect("name") is None
    with pytest.raises(OSError, match=r"exists|directory"), home.snapshot():
        pass


@pytest.mark.parametrize("content", ["", "abcd", "not hexadecimal", "00" * 31])
def test_a_damaged_key_is_told_and_replaced_by_the_databases_alone(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path)
    home.person_key.settle(lambda offer: offer)
    key = key_of(home)
    home.person_key.path.write_text(content)
    with caplog.at_level("WARNING", logger="hermes.pgvector"):
        damaged = Home(tmp_path)
        assert key_of(damaged) == key_of(damaged) == ""
    assert caplog.text.count("person_key is damaged") == 1
    assert not content or content not in caplog.text
    damaged.person_key.settle(lambda offer: offer)
    assert home.person_key.path.read_text() == content
    again = Home(tmp_path)
    again.person_key.settle(lambda offer: offer or key)
    assert key_of(again) == key_of(Home(tmp_path)) == key


def test_a_key_of_the_operator_is_told_to_nobody(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HERMES_PGVECTOR_PERSON_KEY=a long random text\n")
    home = Home(tmp_path)
    home.person_key.settle(lambda offer: pytest.fail("the database was asked"))
    assert key_of(home) == b"a long random text".hex()
    assert not home.state.exists()


def test_state_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        home = Home(tmp_path)
        assert home.id
        key_of(home)
        home.person_key.settle(lambda offer: offer)
        home.remember("calibration", {"a": 1})
        home.set_aside("event", "reason", "raw")
        with home.snapshot() as snapshot:
            snapshot["memory"] = ("a",)
    finally:
        os.umask(before)
    for path in [home.state, *home.state.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path.name


# --- the memory files


def test_entries_of_the_files_are_read_apart(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert (home.entries("memory"), home.entries("user")) == ((), ())
    write_memory(home, "first\n§\nsecond line\nof two\n§\nfirst")
    write_memory(home, "likes tea", "USER.md")
    assert home.entries("memory") == ("first", "second line\nof two")
    assert home.entries("user") == ("likes tea",)


def test_a_file_that_cannot_be_read_is_not_an_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    write_memory(home, b"caf\xe9")
    assert home.entries("memory") is None
    (tmp_path / "memories" / "USER.md").mkdir()
    assert home.entries("user") is None
    monkeypatch.setattr(module, "FILE_BYTES_MAX", 10)
    write_memory(home, "a" * 11)
    assert home.entries("memory") is None


# --- the snapshot


def test_a_snapshot_is_kept_between_visits(tmp_path: Path) -> None:
    with Home(tmp_path).snapshot() as snapshot:
        assert snapshot == {"memory": (), "user": ()}
        snapshot["memory"] = ("one", "zwei \ud800 三")
    with Home(tmp_path).snapshot() as snapshot:
        assert snapshot == {"memory": ("one", "zwei \ud800 三"), "user": ()}


def test_an_error_in_the_block_leaves_the_snapshot_as_it_was(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.snapshot() as snapshot:
        snapshot["user"] = ("kept",)

    def fail() -> None:
        with home.snapshot() as changed:
            changed["user"] = ()
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    with home.snapshot() as snapshot:
        assert snapshot["user"] == ("kept",)


@pytest.mark.parametrize("content", ["", "{", "[]", "5", '{"memory": 5}', '{"memory": null}'])
def test_a_damaged_snapshot_is_an_empty_one(tmp_path: Path, content: str) -> None:
    home = Home(tmp_path)
    home.state.mkdir()
    (home.state / "snapshot.jsonl").write_text(content)
    with home.snapshot() as snapshot:
        assert snapshot == {"memory": (), "user": ()}


@pytest.mark.parametrize("torn", [b"", b'{"memory": ["torn', b"[]\n" * 10_000])
@pytest.mark.parametrize("chars", [10, 100_000])
def test_the_last_whole_line_of_a_long_snapshot_counts(tmp_path: Path, torn: bytes, chars: int) -> None:
    home = Home(tmp_path)
    for number in range(200):
        with home.snapshot() as snapshot:
            snapshot["memory"] = (str(number) * chars if number == 199 else str(number) * 100,)
    with (home.state / "snapshot.jsonl").open("ab") as file:
        file.write(torn)
    with home.snapshot() as snapshot:
        assert snapshot["memory"] == ("199" * chars,)


def test_a_visit_reads_the_end_of_the_snapshot_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    for number in range(400):
        with home.snapshot() as snapshot:
            snapshot["memory"] = (str(number) * 100,)
    size, read, asked = (home.state / "snapshot.jsonl").stat().st_size, os.pread, []
    monkeypatch.setattr(os, "pread", lambda file, length, start: asked.append(length) or read(file, length, start))
    with home.snapshot() as snapshot:
        assert snapshot["memory"] == ("399" * 100,)
    assert sum(asked) < size / 4


def test_the_hosts_scrubbing_is_looked_for_once_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Looked(list[str]):
        def find_spec(self, name: str, *_: object) -> None:
            self.append(name)

    looked = Looked()
    write_memory(Home(tmp_path), "\n§\n".join(f"entry {number}" for number in range(50)))
    monkeypatch.setattr(sys, "meta_path", [looked, *sys.meta_path])
    assert len(Home(tmp_path).entries("memory") or ()) == 50
    assert looked.count("agent") == 1


def test_no_change_of_the_snapshot_is_lost_among_processes(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    script = f"""
        import pathlib, time
        gate, until = pathlib.Path({str(gate)!r}), time.monotonic() + 30
        (gate / sys.argv[2]).touch()
        while len(list(gate.iterdir())) < 4 and time.monotonic() < until:
            pass
        for n in range(50):
            with home.snapshot() as snapshot:
                snapshot["memory"] = (*snapshot["memory"], f"{{sys.argv[2]}}-{{n}}")
        """
    in_processes(4, script, str(tmp_path))
    with Home(tmp_path).snapshot() as snapshot:
        entries = snapshot["memory"]
    assert len(entries) == 200
    for process in range(4):
        assert [entry for entry in entries if entry.startswith(f"{process}-")] == [f"{process}-{n}" for n in range(50)]
    assert sorted(path.name for path in (tmp_path / "pgvector").iterdir()) == ["snapshot.jsonl", "snapshot.lock"]


# --- events set aside


def test_what_is_set_aside_is_found_again_whole(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.aside() == []
    assert home.set_aside("b2", "because", 'raw "text" \ud800\0')
    assert home.set_aside("a1", "therefore", "")
    assert home.set_aside("b2", "because of both", "again")
    assert home.aside() == [("a1", "therefore"), ("b2", "because of both")]
    assert json.loads((home.state / "aside" / "b2.json").read_text()) == {"reason": "because of both", "event": "again"}


def test_room_for_events_set_aside_is_bounded_and_can_be_freed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert [home.set_aside(str(number), "r", "e", files_max=3) for number in range(5)] == [True] * 3 + [False] * 2
    (home.state / "aside" / "0.json").unlink()
    assert home.set_aside("5", "r", "e", files_max=3)
    assert [name for name, _ in home.aside()] == ["1", "2", "5"]


@pytest.mark.parametrize("content", ["", "[]", "{}", "5", "null"])
def test_a_damaged_file_among_them_is_told_and_hides_no_other(tmp_path: Path, content: str) -> None:
    home = Home(tmp_path)
    home.set_aside("good", "reason", "raw")
    (home.state / "aside" / "bad.json").write_text(content)
    assert home.aside() == [("bad", UNREADABLE), ("good", "reason")]


# --- small values


@pytest.mark.parametrize("value", [None, 1, "text", [1, 2], {"model": 0.75}])
def test_a_remembered_value_is_recollected(tmp_path: Path, value: Any) -> None:
    Home(tmp_path).remember("name", value)
    assert Home(tmp_path).recollect("name") == value


def test_a_value_that_is_damaged_or_missing_is_none(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.recollect("name") is None
    home.remember("name", 1)
    (home.state / "name.json").write_text("{")
    assert home.recollect("name") is None


def test_the_spool_can_be_elsewhere(tmp_path: Path) -> None:
    assert Home(tmp_path).spool == tmp_path.resolve() / "pgvector" / "spool"
    one, two = (Home(tmp_path / name, str(tmp_path / "fast")).spool for name in ("one", "two"))
    assert one.parent == two.parent == tmp_path / "fast"
    assert one != two  # in a shared folder, each home stores what is its own
