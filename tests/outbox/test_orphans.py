"""The spools of dead processes: found, taken over by one process, and removed when they are stored."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from spools import die, drained, folders, line, make, numbers, taken_over, turn

from hermes_memory_pgvector.outbox import spool as module
from hermes_memory_pgvector.outbox.orphans import OrphanSpool, orphans


def test_one_of_many_processes_takes_over_an_orphan(
    tmp_path: Path, child: Callable[..., subprocess.Popen[str]]
) -> None:
    dead = make(tmp_path)
    for number in range(10):
        dead.append(turn(number))
    die(dead)
    script = """
        print("ready", flush=True)
        sys.stdin.readline()
        found = list(orphans(folder))
        print(len(found), flush=True)
        time.sleep(60)
        """
    processes = [child(tmp_path, script) for _ in range(4)]
    for process in processes:
        assert line(process) == "ready"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert sorted(line(process) for process in processes) == ["0", "0", "0", "1"]
    # The process that took it over dies as well, before it has stored anything.
    for process in processes:
        process.kill()
        process.wait()
    assert taken_over(tmp_path) == list(range(10))


def test_a_spool_that_its_owner_removes_meanwhile_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner = make(tmp_path)
    owner.append(turn(1))
    owner.acknowledge(owner.take(1))

    def flock(fd: int, operation: int) -> None:
        owner.close()
        locked(fd, operation)

    locked = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    assert taken_over(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert "lost" not in caplog.text


def test_a_process_that_stops_half_way_leaves_the_rest_of_an_orphan_to_the_next(tmp_path: Path) -> None:
    spool = make(tmp_path)
    for number in range(10):
        spool.append(turn(number))
    die(spool)
    (orphan,) = orphans(tmp_path)
    orphan.acknowledge(orphan.take(4))
    orphan.take(3)
    assert orphan.pending == 3
    orphan.close()
    assert taken_over(tmp_path) == list(range(4, 10))


def test_an_orphan_on_a_broken_disk_is_left_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = make(tmp_path)
    spool.append(turn(1))
    die(spool)
    (orphan,) = orphans(tmp_path)

    def broken(path: Path) -> bool:
        raise OSError(errno.EIO, "Input/output error", path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", broken)
        assert orphan.take(1) == []
        orphan.close()
    assert taken_over(tmp_path) == [1]


def test_an_orphan_torn_by_a_crash_gives_its_whole_records_and_is_removed(tmp_path: Path) -> None:
    spool = make(tmp_path)
    for number in range(4):
        spool.append(turn(number))
    assert spool.folder is not None
    path = spool.folder / "00000001.log"
    os.truncate(path, path.stat().st_size - 5)
    die(spool)
    (orphan,) = orphans(tmp_path)
    batch = orphan.take(10)
    assert numbers(batch) == [0, 1, 2]
    assert batch[-1].event is None
    orphan.acknowledge(batch)
    assert orphan.take(10) == []
    orphan.close()
    assert not folders(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"segment": "x"}', '{"segment": 1, "offset": null}'])
def test_an_acknowledged_position_that_cannot_be_read_repeats_rather_than_loses(tmp_path: Path, content: str) -> None:
    spool = make(tmp_path)
    for number in range(4):
        spool.append(turn(number))
    spool.acknowledge(spool.take(2))
    assert spool.folder is not None
    (spool.folder / "acknowledged").write_text(content)
    die(spool)
    assert taken_over(tmp_path) == [0, 1, 2, 3]


def test_an_orphan_that_cannot_be_read_is_left_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 1)
    spool = make(tmp_path)
    for number in range(3):
        spool.append(turn(number))
    assert spool.folder is not None
    second = spool.folder / "00000002.log"
    away = second.rename(tmp_path / "away")
    second.mkdir()
    die(spool)
    with caplog.at_level("WARNING", logger="hermes.pgvector"):
        assert taken_over(tmp_path) == []
        assert taken_over(tmp_path) == []
    assert len(caplog.records) == 1
    second.rmdir()
    away.rename(second)
    assert taken_over(tmp_path) == [0, 1, 2]


def test_a_deleted_orphan_is_logged_as_lost_and_a_stored_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        spool = make(tmp_path)
        spool.append(turn(1))
        die(spool)
    first, second = orphans(tmp_path)
    with caplog.at_level("ERROR", logger="hermes.pgvector"):
        assert drained(first) == [1]
        first.close()
        assert not caplog.records
        deleted = second.folder
        shutil.rmtree(deleted)
        assert second.take(10) == []
    assert [str(deleted) in record.getMessage() for record in caplog.records] == [True]
    second.close()


def test_foreign_folders_are_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "photos"
    foreign.mkdir()
    for name in ("lock", "00000001.log", "holiday.jpg"):
        (foreign / name).write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    assert list(orphans(tmp_path)) == []
    assert sorted(path.name for path in foreign.iterdir()) == ["00000001.log", "holiday.jpg", "lock"]
    assert (tmp_path / "empty").is_dir()


def test_folders_that_a_crash_left_half_made_or_half_removed_are_deleted(tmp_path: Path) -> None:
    unfinished = tmp_path / f".new-{uuid4().hex}"
    unfinished.mkdir()
    (unfinished / "lock").touch()
    bare = tmp_path / uuid4().hex
    bare.mkdir()
    assert list(orphans(tmp_path)) == []
    assert unfinished.is_dir(), "it may still be in the making"
    assert not bare.exists()
    os.utime(unfinished / "lock", (0, 0))
    assert list(orphans(tmp_path)) == []
    assert not unfinished.exists()


def test_orphans_of_a_missing_folder_are_none(tmp_path: Path) -> None:
    assert list(orphans(tmp_path / "nowhere")) == []


def test_the_oldest_orphan_comes_first(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        spool = make(tmp_path)
        spool.append(turn(number))
        assert spool.folder is not None
        os.utime(spool.folder / "lock", (number, number))
        # A process that stopped half-way has touched the folder since.
        os.utime(spool.folder, (9 - number, 9 - number))
        die(spool)
    assert taken_over(tmp_path) == [1, 2, 3]


def test_a_spool_that_was_taken_over_is_no_orphan_for_other_processes(tmp_path: Path) -> None:
    spool = make(tmp_path)
    spool.append(turn(1))
    die(spool)
    (first,) = orphans(tmp_path)
    assert isinstance(first, OrphanSpool)
    assert list(orphans(tmp_path)) == []
    first.close()
    assert taken_over(tmp_path) == [1]
