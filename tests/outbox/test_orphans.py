"""The spools of dead processes: found, taken over by one process, and removed when they are stored."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from spools import die, folders, line, make, numbers, taken_over, turn

from hermes_memory_pgvector.outbox import spool as module
from hermes_memory_pgvector.outbox.orphans import OrphanSpool, orphans


def test_one_of_many_processes_adopts_an_orphan(tmp_path: Path, child: Callable[..., subprocess.Popen[str]]) -> None:
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
    heirs = [child(tmp_path, script) for _ in range(4)]
    for heir in heirs:
        assert line(heir) == "ready"
    for heir in heirs:
        assert heir.stdin is not None
        heir.stdin.write("\n")
        heir.stdin.flush()
    assert sorted(line(heir) for heir in heirs) == ["0", "0", "0", "1"]
    # The one that adopted it dies as well, having stored nothing.
    for heir in heirs:
        heir.kill()
        heir.wait()
    assert taken_over(tmp_path) == list(range(10))


def test_an_adopter_that_stops_half_way_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
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


def test_an_orphan_torn_by_a_crash_gives_its_whole_records_and_goes(tmp_path: Path) -> None:
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


def test_an_orphan_that_cannot_be_read_is_left_and_said_once(
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


def test_what_a_crash_left_while_making_or_removing_a_folder_is_cleared_away(tmp_path: Path) -> None:
    unborn = tmp_path / f".new-{uuid4().hex}"
    unborn.mkdir()
    (unborn / "lock").touch()
    bare = tmp_path / uuid4().hex
    bare.mkdir()
    assert list(orphans(tmp_path)) == []
    assert unborn.is_dir(), "it may still be in the making"
    assert not bare.exists()
    os.utime(unborn / "lock", (0, 0))
    assert list(orphans(tmp_path)) == []
    assert not unborn.exists()


def test_orphans_of_a_missing_folder_are_none(tmp_path: Path) -> None:
    assert list(orphans(tmp_path / "nowhere")) == []


def test_the_oldest_orphan_comes_first(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        spool = make(tmp_path)
        spool.append(turn(number))
        assert spool.folder is not None
        os.utime(spool.folder / "lock", (number, number))
        # An adopter that stopped half-way has touched the folder since.
        os.utime(spool.folder, (9 - number, 9 - number))
        die(spool)
    assert taken_over(tmp_path) == [1, 2, 3]


def test_an_adopted_spool_is_an_orphan_for_nobody_else(tmp_path: Path) -> None:
    spool = make(tmp_path)
    spool.append(turn(1))
    die(spool)
    (first,) = orphans(tmp_path)
    assert isinstance(first, OrphanSpool)
    assert list(orphans(tmp_path)) == []
    first.close()
    assert taken_over(tmp_path) == [1]
