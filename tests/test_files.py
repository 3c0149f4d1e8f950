"""Files that the processes of a home share: values that the first of them makes, and marks."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_memory_pgvector import files
from hermes_memory_pgvector.files import LastingMarks, Marks, mark_name, read_or_create

PIN = mark_name("the PIN is 9921")


def marks(folder: Path, marks_max: int = 1000) -> Marks:
    return Marks(folder, marks_max, "which facts are secret")


def test_a_value_that_another_process_makes_at_the_same_moment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read, missing = tmp_path / "value", files.read_matching, []

    def then_made_by_another(path: Path, pattern: re.Pattern[str]) -> str:
        found = read(path, pattern)
        if not found and not missing:
            missing.append(path)
            path.write_text("theirs")
        return found

    monkeypatch.setattr(files, "read_matching", then_made_by_another)
    assert read_or_create(path, "ours", re.compile("ours|theirs")) == "theirs"
    assert missing


@pytest.mark.parametrize("error", [errno.EPERM, errno.EACCES, errno.ENOTSUP])
def test_a_value_is_kept_on_a_file_system_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "link", refuse)
    path, pattern = tmp_path / "folder" / "value", re.compile("first|second")
    assert read_or_create(path, "first", pattern) == read_or_create(path, "second", pattern) == "first"
    files.create(path, "second")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("first", 0o600)
    assert os.listdir(path.parent) == ["value"]


def test_of_several_processes_that_find_a_damaged_value_the_first_replaces_it(tmp_path: Path) -> None:
    path, found = tmp_path / "value", list[str]()
    path.write_text("damaged")
    second = threading.Thread(target=lambda: found.append(read_or_create(path, "second", re.compile("first|second"))))
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        second.start()
        second.join(0.2)
        files.overwrite(path, "first")
    second.join(10)
    assert found == ["first"] == [path.read_text()]


def test_marks_are_kept_for_other_processes_until_they_are_removed(tmp_path: Path) -> None:
    one, other = marks(tmp_path / "state" / "marks"), marks(tmp_path / "state" / "marks")
    assert one.names() == frozenset()
    one.change([PIN, mark_name("the key is under the mat")], marked=True)
    assert PIN in other
    assert mark_name("another fact") not in other
    assert other.names() == {PIN, mark_name("the key is under the mat")}
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [(path.read_text(), path.stat().st_mode & 0o77) for path in paths] == [("", 0)] * 2
    assert not any("PIN" in str(path) for path in paths)
    other.change([PIN], marked=False)
    assert PIN not in one
    assert one.names() == {mark_name("the key is under the mat")}


_MARKER = """
    import sys, time
    from pathlib import Path
    from hermes_memory_pgvector.files import Marks
    marks = Marks(Path(sys.argv[1]), 1000, "")
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(100):
        marks.change([sys.argv[2] + str(number)], marked=True)
        time.sleep(0.001)
"""


def test_two_processes_that_mark_at_the_same_time_lose_no_mark(tmp_path: Path) -> None:
    markers = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(_MARKER), str(tmp_path), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        ) for name in "ab"
    ]  # fmt: skip
    for marker in markers:
        assert marker.stdout is not None
        assert marker.stdout.readline() == "ready\n"
    for marker in markers:
        assert marker.stdin is not None
        marker.stdin.write("go\n")
        marker.stdin.flush()
    for marker in markers:
        marker.communicate(timeout=60)
        assert marker.returncode == 0
    assert marks(tmp_path).names() == {f"{name}{number}" for name in "ab" for number in range(100)}


def test_the_oldest_of_too_many_marks_are_forgotten(tmp_path: Path) -> None:
    few = marks(tmp_path, 3)
    for number, name in enumerate("dcba"):
        few.change([name], marked=True)
        os.utime(tmp_path / name, (number, number))
    few.change(["a"], marked=True)
    assert few.names() == marks(tmp_path).names() == {"a", "b", "c"}
    assert "d" not in few


def test_a_lasting_mark_outlives_any_number_of_later_ones(tmp_path: Path) -> None:
    lasting = LastingMarks(tmp_path, 5_000, "which sessions are off the record")
    lasting.change([PIN], marked=True)
    os.utime(tmp_path / PIN, (1, 1))
    lasting.change(map(str, range(2_000)), marked=True)
    for process in (lasting, LastingMarks(tmp_path, 5_000, "")):
        assert PIN in process
        assert "another" not in process
        assert len(process.names()) == 2_001


def test_when_no_more_lasting_marks_can_be_made_every_name_counts_as_marked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = (LastingMarks(tmp_path, 3, "") for _ in range(2))
    one.change("abc", marked=True)
    assert "holds 3 marks, the most it may: all counts as marked" in caplog.text
    other.change("d", marked=True)
    other.change("a", marked=False)
    for process in (one, other, LastingMarks(tmp_path, 3, "")):
        assert all(name in process for name in "abcdx")
        assert process.names() == {"b", "c", LastingMarks.ALL}
    (tmp_path / LastingMarks.ALL).unlink()
    assert "x" not in one
    assert "b" in one


def test_lasting_marks_that_cannot_be_written_are_all_known_to_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    lasting = LastingMarks(tmp_path / "file" / "marks", 3, "")
    for name in "abcde":
        lasting.change(name, marked=True)
    assert all(name in lasting for name in "abcdex")


def test_marks_that_cannot_be_written_are_known_to_the_process_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in (tmp_path / "link", tmp_path / "file" / "marks"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to("nowhere")
        (tmp_path / "file").write_text("")
        one = marks(folder)
        one.change([PIN], marked=True)
        assert PIN in one
        assert "which facts are secret" in caplog.text
        assert f"make {folder} writable" in caplog.text
        one.change([PIN], marked=False)
        assert PIN not in one


def test_marks_that_could_not_be_written_are_listed(tmp_path: Path) -> None:
    (tmp_path / "marks").symlink_to("nowhere")
    one = marks(tmp_path / "marks")
    one.change([PIN], marked=True)
    assert one.names() == {PIN}
    one.change([PIN], marked=False)
    assert one.names() == frozenset()


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "marks").write_text("")
    with pytest.raises(NotADirectoryError):
        marks(tmp_path / "marks").names()


def test_a_mark_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    state = tmp_path / "pgvector"
    state.write_text("")
    one, other = marks(state / "marks"), marks(state / "marks")
    one.change([PIN], marked=True)
    state.unlink()
    assert PIN in one
    assert PIN in other


def test_a_process_whose_home_loses_the_folder_still_knows_its_marks(tmp_path: Path) -> None:
    one = marks(tmp_path / "marks")
    one.change([PIN], marked=True)
    shutil.rmtree(tmp_path / "marks")
    assert PIN in one
    assert one.names() == {PIN}
    assert mark_name("another fact") not in one


def test_the_marks_of_a_folder_that_is_lost_are_in_the_one_that_is_made_again(tmp_path: Path) -> None:
    one, another = marks(tmp_path / "marks"), mark_name("another fact")
    one.change([PIN], marked=True)
    shutil.rmtree(tmp_path / "marks")
    one.change([another], marked=True)
    assert PIN in one
    assert marks(tmp_path / "marks").names() == {PIN, another}


def test_a_process_that_can_open_no_more_files_still_knows_the_marks(tmp_path: Path) -> None:
    marks(tmp_path).change([PIN], marked=True)
    one, (soft, hard) = marks(tmp_path), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        found = PIN in one
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found


def test_a_mark_in_a_folder_that_cannot_be_listed_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    one = marks(tmp_path / "marks")
    monkeypatch.setattr(os, "listdir", refuse)
    one.change([PIN], marked=True)
    assert PIN in one
    assert PIN in marks(tmp_path / "marks")


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(tmp_path: Path) -> None:
    one, inside, leave = marks(tmp_path / "marks"), threading.Event(), threading.Event()

    def names() -> Iterator[str]:
        yield PIN
        inside.set()
        leave.wait(30)

    changing = threading.Thread(target=one.change, args=(names(),), kwargs={"marked": True})
    changing.start()
    assert inside.wait(10)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        one.abandon()
        os._exit(PIN in one)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    leave.set()
    changing.join(10)
    assert ended == 0
    assert PIN in one
