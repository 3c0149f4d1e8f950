"""What `status` and `doctor` say of the spool: counted from its files, while others work on them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.outbox.inspection import Backlog, processes, total
from hermes_memory_pgvector.outbox.segments import segments
from hermes_memory_pgvector.outbox.spool import Spool

START = datetime(2026, 1, 1, tzinfo=UTC)


def turn(number: int) -> TurnTaken:
    return TurnTaken(theme="t", user=f"question {number}", assistant="x" * number, at=START + timedelta(days=number))


def spooled(folder: Path, *numbers: int) -> Spool:
    spool = Spool(folder, bytes_max=64 << 20, window_max=5)
    for number in numbers:
        assert spool.append(turn(number))
    return spool


def backlog(folder: Path) -> Backlog:
    return total(process.waiting for process in processes(folder))


def size_on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*/*.log"))


def test_a_spool_that_was_never_used_is_empty(tmp_path: Path) -> None:
    assert backlog(tmp_path / "nothing") == Backlog(0, 0, 0, None)


def test_events_of_all_processes_are_counted_and_the_oldest_is_found(tmp_path: Path) -> None:
    spools = [spooled(tmp_path, 5, 6), spooled(tmp_path, *range(3, 15))]
    found = backlog(tmp_path)
    assert (found.processes, found.events, found.oldest) == (2, 14, START + timedelta(days=3))
    assert found.bytes == size_on_disk(tmp_path)
    for spool in spools:
        spool.close()
    assert backlog(tmp_path) == found


def test_what_was_stored_is_not_counted(tmp_path: Path) -> None:
    spool = spooled(tmp_path, *range(10))
    spool.acknowledge(spool.take(4))
    found = backlog(tmp_path)
    assert (found.events, found.oldest) == (6, START + timedelta(days=4))
    assert 0 < found.bytes < size_on_disk(tmp_path)
    while batch := spool.take(10):
        spool.acknowledge(batch)
    assert backlog(tmp_path) == Backlog()


def test_events_of_several_segments_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_memory_pgvector.outbox.spool.SEGMENT_BYTES_MAX", 1000)
    spool = spooled(tmp_path, *range(40))
    assert spool.folder is not None
    assert len(segments(spool.folder)) > 3
    assert backlog(tmp_path).events == 40
    spool.acknowledge(spool.take(5))
    spool.acknowledge(spool.take(10))
    assert backlog(tmp_path).events == spool.pending < 40
    # A process that dies before it removes a stored segment leaves it behind.
    (spool.folder / "00000000.log").write_bytes(segments(spool.folder)[-1][1].read_bytes())
    assert backlog(tmp_path).events == spool.pending


def test_damage_hides_one_record_and_not_those_behind_it(tmp_path: Path) -> None:
    spool = spooled(tmp_path, *range(10))
    assert spool.folder is not None
    path = segments(spool.folder)[0][1]
    data = bytearray(path.read_bytes())
    second = data.find(data[:4], 4)
    data[second : second + 4] = b"????"
    path.write_bytes(data)
    assert backlog(tmp_path).events == 9


def test_inspection_changes_no_file(tmp_path: Path) -> None:
    spooled(tmp_path, 1, 2, 3).close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    backlog(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
