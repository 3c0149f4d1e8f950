from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from hermes_memory_pgvector import files
from hermes_memory_pgvector.files import Marks
from hermes_memory_pgvector.hosts.environment import host_module
from hermes_memory_pgvector.mirror import home as module
from hermes_memory_pgvector.mirror import reconcile, snapshot
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.mirror.reconcile import Reconciler
from hermes_memory_pgvector.mirror.snapshot import Entries
from hermes_memory_pgvector.model import Add, Event, Remove, Replace, Target, now
from hermes_memory_pgvector.outbox.dead_letters import DeadLetters
from hermes_memory_pgvector.session.person_key import PersonKey
from hermes_memory_pgvector.settings import Settings


def in_processes(count: int, script: str, *arguments: str) -> list[str]:
    """Run a script in several processes at once and return what each printed."""
    prologue = "import sys\nfrom hermes_memory_pgvector.mirror.home import Home\nhome = Home(sys.argv[1])\n"
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


def note(home: Home, *lines: str, events: Sequence[Event] = ()) -> None:
    """Put these entries of MEMORY.md into the snapshot, and these events, as yet in no spool."""
    with home.snapshot(5) as found:
        found.write({"memory": lines, "user": ()}, events)


def noted(path: Path) -> tuple[Entries, tuple[Event, ...]]:
    """What a process that begins now finds in the snapshot."""
    with Home(path).snapshot(5) as found:
        return found.entries, found.pending


def key_of(home: Home) -> str:
    """The current key of persons, as hexadecimal digits."""
    return PersonKey(home.state).name(lambda key: key.hex())


# --- identity and key


def test_a_home_keeps_its_id(tmp_path: Path) -> None:
    assert Home(tmp_path).id == Home(tmp_path).id != ""
    assert Home(tmp_path / "other").id != Home(tmp_path).id


def test_many_processes_that_begin_at_once_agree_on_the_id_and_the_key(tmp_path: Path) -> None:
    key = "PersonKey(home.state).name(lambda key: key.hex())"
    imported = "from hermes_memory_pgvector.session.person_key import PersonKey"
    printed = in_processes(5, f"{imported}\nprint(home.id, {key})", str(tmp_path))
    assert len(set(printed)) == 1
    assert printed[0] == f"{Home(tmp_path).id} {key_of(Home(tmp_path))}"
    assert sorted(path.name for path in (tmp_path / "pgvector").iterdir()) == [
        "defaults", "home_id", "home_place", "person_key.names", "person_key.provisional"
    ]  # fmt: skip


def test_a_profile_that_is_a_copy_of_another_one_gets_an_id_of_its_own(tmp_path: Path) -> None:
    original = Home(tmp_path)
    (tmp_path / "memories").mkdir()
    original.file("memory").write_text("known")
    Reconciler(original, lambda _: True).reconcile("default", "s")
    (original.state / "embedded_database").write_text("7")
    ids = {original.id}
    for source, name in (("", "first"), ("profiles/first", "second")):
        copy = tmp_path / "profiles" / name
        shutil.copytree(tmp_path / source, copy, ignore=shutil.ignore_patterns("profiles"))
        (printed, *others) = in_processes(5, "print(home.id)", str(copy))
        assert set(others) == {printed}
        assert not {"snapshot.jsonl", "embedded_database"}.intersection(os.listdir(copy / "pgvector"))
        ids.add(printed)
    assert len(ids) == 3
    assert {Home(home).id for home in (tmp_path, *(tmp_path / "profiles").iterdir())} == ids
    assert (original.state / "snapshot.jsonl").exists()


def test_a_profile_that_is_restored_from_a_copy_beside_it_keeps_its_id(tmp_path: Path) -> None:
    one, backup = tmp_path / "profiles" / "one", tmp_path / "profiles" / "one-2026"
    home_id = Home(one).id
    shutil.copytree(one, backup)
    shutil.rmtree(one)
    shutil.copytree(backup, one)
    assert Home(one).id == home_id
    # What is made of the copy is another profile.
    assert Home(backup).id != home_id
    assert Home(one).id == home_id


def test_the_owner_of_files_does_not_tell_which_profile_is_the_copy(tmp_path: Path) -> None:
    one, copy = tmp_path / "profiles" / "one", tmp_path / "profiles" / "copy"
    home_id = Home(one).id
    shutil.copytree(one, copy)
    # As 'chown -R' at the start of a container: the time of the last change is that of now.
    for folder in (copy, one):
        os.chown(folder / "pgvector" / "home_id", os.getuid(), os.getgid())
    assert Home(one).id == home_id != Home(copy).id


def test_a_profile_among_others_that_cannot_be_listed_has_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = tmp_path / "profiles" / "one"
    home_id = Home(one).id
    (one / "pgvector" / "home_place").unlink(missing_ok=True)

    def refuse(folder: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert Home(one).id == home_id


@pytest.mark.parametrize("place", ["profiles/moved", "elsewhere"])
def test_a_home_that_is_moved_keeps_its_id(tmp_path: Path, place: str) -> None:
    home_id = Home(tmp_path / "profiles" / "one").id
    (tmp_path / "profiles" / "one").rename(tmp_path / place)
    assert Home(tmp_path / place).id == home_id != Home(tmp_path).id


def test_a_home_that_cannot_be_written_has_no_id_and_a_temporary_key(tmp_path: Path) -> None:
    home = read_only(tmp_path)
    assert home.id == ""
    assert len(key_of(home)) == 64
    letters = DeadLetters(home.state)
    assert not letters.keep("x", "reason", "raw")
    assert list(letters) == []
    with pytest.raises(OSError, match=r"exists|directory"), home.snapshot(1):
        pass


def test_the_id_and_the_key_of_a_home_are_read_while_its_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home_id, key = Home(tmp_path).id, key_of(Home(tmp_path))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(files, "_temporary", full)
    assert Home(tmp_path).id == home_id != ""
    assert key_of(Home(tmp_path)) == key


def test_state_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        home = Home(tmp_path)
        assert home.id
        key_of(home)
        PersonKey(home.state).settle(lambda offer: offer)
        Marks(home.state / "unrecorded", 9, "").change("a", marked=True)
        DeadLetters(home.state).keep("event", "reason", "raw")
        note(home, "a")
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
    write_memory(home, "a" * 10)
    assert home.entries("memory") == ("a" * 10,)


# --- the snapshot


def test_a_snapshot_is_read_back_by_the_next_process(tmp_path: Path) -> None:
    assert noted(tmp_path) == ({"memory": (), "user": ()}, ())
    note(Home(tmp_path), "one", "zwei \ud800 三")
    assert noted(tmp_path) == ({"memory": ("one", "zwei \ud800 三"), "user": ()}, ())


@pytest.mark.parametrize("lost", ["snapshot.jsonl", "."])
def test_a_deleted_snapshot_is_made_again(tmp_path: Path, lost: str) -> None:
    home = Home(tmp_path)
    note(home, "one")
    (home.state / lost).resolve().rename(tmp_path / "away")
    assert noted(tmp_path)[0]["memory"] == ()
    note(home, "two")
    assert noted(tmp_path)[0]["memory"] == ("two",)


@pytest.mark.parametrize("lost", ["snapshot.jsonl", "."])
def test_a_snapshot_that_is_deleted_while_somebody_waits_for_it_is_made_again(tmp_path: Path, lost: str) -> None:
    home, found = Home(tmp_path), list[tuple[str, ...]]()
    note(home, "one")

    def wait() -> None:
        with Home(tmp_path).snapshot(20) as snapshot:
            found.append(snapshot.entries["memory"])

    waiting = threading.Thread(target=wait)
    with home.snapshot(1):
        waiting.start()
        waiting.join(0.1)
        (home.state / lost).resolve().rename(tmp_path / "away")
    waiting.join(20)
    assert found == [()]
    note(home, "two")
    assert noted(tmp_path)[0]["memory"] == ("two",)


@pytest.mark.parametrize("finished", [True, False])
def test_pending_events_are_submitted_again_until_they_are_cleared(tmp_path: Path, finished: bool) -> None:
    events = (Add(theme="ops", target="memory", content="one"), Remove(theme="ops", target="memory", previous="zwei"))
    home = Home(tmp_path)
    note(home, "one", events=events)
    assert noted(tmp_path)[1] == events
    with home.snapshot(1) as found:
        if finished:
            found.clear_pending()
    assert noted(tmp_path) == ({"memory": ("one",), "user": ()}, () if finished else events)
    with (home.state / "snapshot.jsonl").open("ab") as file:
        file.write(b'\n{"memory": ["torn')
    assert noted(tmp_path) == ({"memory": ("one",), "user": ()}, () if finished else events)


def test_a_pending_event_that_is_always_refused_does_not_stop_new_changes(tmp_path: Path) -> None:
    def die(event: Event) -> bool:
        raise SystemExit

    def accept(event: Event) -> bool:
        taken.append(event)
        return event.theme != "stranger"

    home = Home(tmp_path)
    common = {"home": home.id, "target": "memory"}
    with pytest.raises(SystemExit):
        Reconciler(home, die).change(Add(theme="stranger", content="a", **common))
    taken: list[Event] = []
    mirror = Reconciler(home, accept)
    assert mirror.change(Add(theme="ops", content="b", **common))
    assert mirror.change(Add(theme="ops", content="c", **common))
    assert [event.theme for event in taken] == ["stranger", "ops", "ops"]


def test_an_off_record_entry_is_not_stored_when_the_removal_of_its_old_text_is_refused(tmp_path: Path) -> None:
    home, taken = Home(tmp_path), list[Event]()
    note(home, "an old secret")
    write_memory(home, "a new secret")
    change = Replace(theme="ops", home=home.id, target="memory", content="a new secret", previous="an old secret")
    assert not Reconciler(home, lambda _: False).change(change, stored=False)
    write_memory(home, "a new secret\n§\nkelp")
    Reconciler(Home(tmp_path), lambda event: taken.append(event) is None).reconcile("ops", "s")
    assert [(type(event), getattr(event, "content", "")) for event in taken] == [(Remove, ""), (Add, "kelp")]
    assert noted(tmp_path)[0]["memory"] == ("a new secret", "kelp")


def test_an_off_record_entry_written_while_the_files_are_read_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_slowly(home: Home, target: Target) -> tuple[str, ...] | None:
        if not written:
            written.append("a secret")
            write_memory(home, "a secret")
            assert Reconciler(Home(tmp_path), accept).change(secret, stored=False)
        return read(home, target)

    def accept(event: Event) -> bool:
        pytest.fail(f"{type(event).__name__} was told")

    read, written, secret = Home.lines, list[str](), Add(theme="ops", target="memory", content="a secret")
    monkeypatch.setattr(Home, "lines", read_slowly)
    for _ in range(3):
        Reconciler(Home(tmp_path), accept).reconcile("ops", "s")
    assert written == ["a secret"]
    write_memory(Home(tmp_path), "kelp")
    Reconciler(Home(tmp_path), lambda _: True).reconcile("ops", "s")
    assert list((tmp_path / "pgvector" / "unrecorded").iterdir()) == []


@pytest.mark.parametrize("lost", [b"caf\xe9", "memory: {memory_enabled: false}"])
def test_an_off_record_entry_is_remembered_while_its_file_is_unreadable(tmp_path: Path, lost: bytes | str) -> None:
    home, taken = Home(tmp_path), list[Event]()
    mirror = Reconciler(home, lambda event: taken.append(event) is None)
    with Home(tmp_path).snapshot(1):
        write_memory(home, "a secret")
        assert mirror.change(Add(theme="ops", target="memory", content="a secret"), stored=False)
    if isinstance(lost, bytes):
        write_memory(home, lost)
    else:
        (tmp_path / "config.yaml").write_text(lost)
    mirror.reconcile("ops", "s")
    (tmp_path / "config.yaml").unlink(missing_ok=True)
    write_memory(home, "a secret")
    mirror.reconcile("ops", "s")
    assert taken == []


def test_pending_events_of_another_version_are_skipped(tmp_path: Path) -> None:
    home = Home(tmp_path)
    event = Add(theme="ops", target="memory", content="one")
    note(home, "one", events=[event])
    path = home.state / "snapshot.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"begun": [', b'"begun": ["{}", '))
    assert noted(tmp_path) == ({"memory": ("one",), "user": ()}, (event,))


def test_the_time_of_the_newest_event_is_kept_after_the_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "COMPACT_BYTES", 0)
    older, newer = (Add(theme="ops", target="memory", content=content) for content in ("one", "two"))
    note(Home(tmp_path), "one", "two", events=[newer, older])
    note(Home(tmp_path), "one")
    for _ in range(2):
        with Home(tmp_path).snapshot(1) as found:
            assert found.last == newer.at
            found.compact()


def test_a_process_dates_no_change_before_its_own_earlier_ones_when_the_snapshot_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, taken = Home(tmp_path), list[Event]()
    mirror = Reconciler(home, lambda event: taken.append(event) is None)
    with monkeypatch.context() as clock:
        ahead = now() + timedelta(days=1)
        clock.setattr(reconcile, "now", lambda: ahead)
        mirror.change(Add(theme="ops", home=home.id, target="memory", content="kelp"))
    (home.state / "snapshot.jsonl").unlink()
    mirror.change(Remove(theme="ops", home=home.id, target="memory", previous="kelp"))
    assert taken[0].at == ahead < taken[1].at


def test_a_snapshot_line_without_a_time_is_read(tmp_path: Path) -> None:
    home = Home(tmp_path)
    note(home, "one", events=[Add(theme="ops", target="memory", content="one")])
    with (home.state / "snapshot.jsonl").open("ab") as file:
        file.write(b'\n{"memory": ["older"], "user": []}\n\n')
    with home.snapshot(1) as found:
        assert (found.entries["memory"], found.last) == (("older",), snapshot.NEVER)


@pytest.mark.parametrize(
    "content", ["", "{\n", "[]\n", "5\n", '{"memory": 5}\n', '{"memory": null}\n', '{"begun": 5}\n', '{"last": 5}\n']
)
def test_a_damaged_snapshot_is_an_empty_one(tmp_path: Path, content: str) -> None:
    home = Home(tmp_path)
    home.state.mkdir()
    (home.state / "snapshot.jsonl").write_text(content)
    assert noted(tmp_path) == ({"memory": (), "user": ()}, ())


@pytest.mark.parametrize("torn", [b"", b'{"memory": ["torn', b"[]\n" * 10_000])
@pytest.mark.parametrize("chars", [10, 100_000])
def test_the_last_whole_line_of_a_long_snapshot_counts(tmp_path: Path, torn: bytes, chars: int) -> None:
    home = Home(tmp_path)
    for number in range(200):
        note(home, str(number) * chars if number == 199 else str(number) * 100)
    with (home.state / "snapshot.jsonl").open("ab") as file:
        file.write(torn)
    assert noted(tmp_path)[0]["memory"] == ("199" * chars,)


def test_after_a_line_that_a_full_disk_cut_off_the_line_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    begun = Add(theme="ops", target="memory", content="two")
    note(home, "one", "two", events=[begun])
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, line: write(file, line[:5]))
        with pytest.raises(OSError, match="disk is full"):
            note(home, "one")
    assert noted(tmp_path) == ({"memory": ("one", "two"), "user": ()}, (begun,))
    note(home, "one")
    assert noted(tmp_path)[0]["memory"] == ("one",)


def test_only_the_end_of_a_snapshot_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, asked = Home(tmp_path), list[int]()
    for number in range(400):
        note(home, str(number) * 100)
    size, read = (home.state / "snapshot.jsonl").stat().st_size, os.pread
    monkeypatch.setattr(os, "pread", lambda file, length, start: asked.append(length) or read(file, length, start))
    assert noted(tmp_path)[0]["memory"] == ("399" * 100,)
    assert 0 < sum(asked) < size / 4


def test_a_process_dates_no_change_before_those_it_has_seen_when_the_snapshot_is_lost(tmp_path: Path) -> None:
    home, taken, ahead = Home(tmp_path), list[Event](), now() + timedelta(days=1)
    note(Home(tmp_path), events=[Add(theme="ops", target="memory", content="kelp", at=ahead)])
    with home.snapshot(1) as found:
        found.clear_pending()
    mirror = Reconciler(home, lambda event: taken.append(event) is None)
    mirror.reconcile("ops", "s")
    assert taken == []
    (home.state / "snapshot.jsonl").unlink()
    mirror.change(Remove(theme="ops", home=home.id, target="memory", previous="kelp"))
    assert ahead < taken[0].at


def test_a_change_names_no_entry_off_the_record(tmp_path: Path) -> None:
    home, taken = Home(tmp_path), list[Event]()
    mirror = Reconciler(home, lambda event: taken.append(event) is None)
    write_memory(home, "kelp\n§\na secret")
    assert mirror.change(Add(theme="ops", target="memory", content="a secret"), stored=False)
    with Home(tmp_path).snapshot(1):
        assert mirror.change(Remove(theme="ops", target="memory", old_text="eels"))
    assert [event.surviving for event in taken if isinstance(event, Remove)] == [("kelp",)]


@pytest.mark.parametrize("patient", [True, False])
def test_a_snapshot_is_compacted_while_another_home_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient: bool
) -> None:
    monkeypatch.setattr(snapshot, "FILE_BYTES_MAX", 1 << 20 if patient else 4096)
    monkeypatch.setattr(snapshot, "COMPACT_BYTES", 4096)
    homes, event = [Home(tmp_path), Home(tmp_path)], Add(theme="ops", target="memory", content="x")
    for number in range(100):
        home = homes[number % 2]
        note(home, str(number) * 100, events=[event])
        if patient:
            with home.snapshot(1) as found:
                found.compact()
        assert noted(tmp_path) == ({"memory": (str(number) * 100,), "user": ()}, (event,))
    assert [(path.name, path.stat().st_size < 5000) for path in home.state.iterdir()] == [("snapshot.jsonl", True)]


def test_nobody_gets_inside_while_a_snapshot_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "FILE_BYTES_MAX", 0)
    home = Home(tmp_path)
    with home.snapshot(1) as found:
        for entry in ("one", "two"):
            found.write({"memory": (entry,), "user": ()})
            with pytest.raises(BlockingIOError), Home(tmp_path).snapshot(0):
                pass
    assert noted(tmp_path)[0]["memory"] == ("two",)


@pytest.mark.parametrize("fails", [False, True])
def test_a_snapshot_leaves_no_open_file(tmp_path: Path, fails: bool) -> None:
    def files() -> int:
        return sum(os.path.realpath(path).startswith(str(tmp_path)) for path in Path("/proc/self/fd").iterdir())

    home = Home(tmp_path)
    with contextlib.suppress(RuntimeError), home.snapshot(1):
        assert files() == 1
        with pytest.raises(BlockingIOError), home.snapshot(0):
            pass
        if fails:
            raise RuntimeError
    assert files() == 0


def test_a_forked_child_neither_has_nor_breaks_the_lock_of_its_parent(tmp_path: Path) -> None:
    home = Home(tmp_path)

    def visit_in_a_child() -> int:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(OSError), home.snapshot(0):
                os._exit(0)
            os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    with home.snapshot(1):
        assert [visit_in_a_child(), visit_in_a_child()] == [1, 1]
        done, wait = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(wait)
            os.read(done, 1)
            os._exit(0)
    # A child that was forked meanwhile and lives on does not keep the lock.
    assert visit_in_a_child() == 0
    os.close(wait)
    os.close(done)
    os.waitpid(child, 0)


def test_a_forked_child_does_not_keep_the_lock_of_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = """
        import os, signal, threading
        from hermes_memory_pgvector.mirror.reconcile import Reconciler
        inside, mirror = threading.Event(), Reconciler(home, bool)

        def hold():
            with home.snapshot(1):
                inside.set()
                signal.pause()

        threading.Thread(target=hold, daemon=True).start()
        assert inside.wait(10)
        parent = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == parent:
            pass
        mirror.abandon()
        with home.snapshot(1):
            print("inside", flush=True)
        """
    assert in_processes(1, script, str(tmp_path)) == ["inside"]


def test_the_scrubber_of_the_host_is_looked_up_once_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Looked(list[str]):
        def find_spec(self, name: str, *_: object) -> None:
            self.append(name)

    looked = Looked()
    write_memory(Home(tmp_path), "\n§\n".join(f"entry {number}" for number in range(50)))
    monkeypatch.setattr(sys, "meta_path", [looked, *sys.meta_path])
    host_module.cache_clear()
    assert len(Home(tmp_path).entries("memory") or ()) == 50
    assert looked.count("agent") == 1


def test_processes_at_once_lose_no_change_of_the_snapshot(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    script = f"""
        import pathlib, time
        gate, until = pathlib.Path({str(gate)!r}), time.monotonic() + 30
        (gate / sys.argv[2]).touch()
        while len(list(gate.iterdir())) < 4 and time.monotonic() < until:
            pass
        for n in range(50):
            with home.snapshot(5) as found:
                entries = found.entries
                found.write({{**entries, "memory": (*entries["memory"], f"{{sys.argv[2]}}-{{n}}")}})
        """
    in_processes(4, script, str(tmp_path))
    entries = noted(tmp_path)[0]["memory"]
    assert len(entries) == 200
    for process in range(4):
        assert [entry for entry in entries if entry.startswith(f"{process}-")] == [f"{process}-{n}" for n in range(50)]
    assert sorted(path.name for path in (tmp_path / "pgvector").iterdir()) == ["snapshot.jsonl"]


def test_the_spool_can_be_elsewhere(tmp_path: Path) -> None:
    assert Home(tmp_path).spool == tmp_path.resolve() / "pgvector" / "spool"
    settings = Settings(spool_dir=str(tmp_path / "fast"))
    one, two = (Home(tmp_path / name, settings).spool for name in ("one", "two"))
    assert one.parent == two.parent == tmp_path / "fast"
    assert one != two  # in a shared folder, each home stores what is its own


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe\x00garbage", b"0" * 31, "ü".encode() * 16])
def test_a_damaged_id_of_the_home_is_replaced_once(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    before = Home(tmp_path).id
    (tmp_path / "pgvector" / "home_id").write_bytes(damage)
    after = Home(tmp_path).id
    assert len(after) == 32
    assert after != before
    assert "home_id is damaged" in caplog.text
    assert Home(tmp_path).id == after


@pytest.mark.parametrize("damage", ["[" * 200_000, '{"memory": ["a"], "last": "9999-12-31T23:59:59.999999+00:00"}'])
def test_a_damaged_line_of_the_snapshot_stops_no_change(tmp_path: Path, damage: str) -> None:
    home, taken = Home(tmp_path), list[Event]()
    note(home, "kelp")
    with (tmp_path / "pgvector" / "snapshot.jsonl").open("a") as file:
        file.write(f"\n{damage}\n\n")
    change = Add(theme="ops", home=home.id, target="memory", content="eels")
    assert Reconciler(Home(tmp_path), lambda event: taken.append(event) is None).change(change)
    assert len(taken) == 1
    assert noted(tmp_path)[0]["memory"] == ("kelp", "eels")
