"""Stored events that are kept: for how long, within which bounds, and when they are offered again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from spools import die, folders, make, numbers, turn

from hermes_memory_pgvector.outbox import kept_segments as module
from hermes_memory_pgvector.outbox import spool as spool_module
from hermes_memory_pgvector.outbox.inspection import processes, total
from hermes_memory_pgvector.outbox.kept_segments import KeptSegments
from hermes_memory_pgvector.outbox.orphans import offer_again, orphans
from hermes_memory_pgvector.outbox.segments import blank_acknowledged
from hermes_memory_pgvector.outbox.spool import Spool

OLD, NEW, NEWER = "7-00000001", "7-00000002", "7-00000003"
DAYS = 90


def keeping(folder: Path, keep_s: float = 600, bytes_max: int = 1 << 30, **options: Any) -> Spool:
    return make(folder, bytes_max, kept=KeptSegments(folder, keep_s=keep_s, bytes_max=bytes_max), **options)


def store(spool: Spool, timeline: str, limit: int = 7) -> list[int]:
    found = []
    while batch := spool.take(limit):
        found += numbers(batch)
        spool.acknowledge(batch, timeline)
    return found


def offered(folder: Path, timeline: str, keep_s: float = 600) -> list[int]:
    """What a process stores that sees the server on this timeline."""
    kept = KeptSegments(folder, keep_s=keep_s, bytes_max=1 << 30)
    offer_again(kept, timeline, DAYS)
    found = []
    for orphan in orphans(folder, kept):
        found += store(orphan, timeline)
        orphan.close()
    return found


def files(folder: Path) -> list[Path]:
    return sorted((folder / module.FOLDER).glob("*"))


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES_MAX", 1_000)


@pytest.mark.parametrize("end", ["closed", "killed", "killed after a part"])
def test_what_an_ended_process_stored_is_offered_once_on_another_timeline(
    tmp_path: Path, small_segments: None, end: str
) -> None:
    spool = keeping(tmp_path, window_max=100)
    for number in range(30):
        assert spool.append(turn(number))
    stored = 17 if end == "killed after a part" else 30
    spool.acknowledge(spool.take(stored), OLD)
    spool.close() if end == "closed" else die(spool)
    assert offered(tmp_path, OLD) == list(range(stored, 30))
    assert [path.name for path in folders(tmp_path)] == [module.FOLDER]
    assert offered(tmp_path, NEW) == list(range(30))
    assert offered(tmp_path, NEW) == []
    # The old primary is back: what was stored there is there.
    assert offered(tmp_path, OLD) == []
    assert offered(tmp_path, NEWER) == list(range(30))


def test_what_was_stored_is_offered_on_a_file_system_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    spool = keeping(tmp_path)
    for number in range(3):
        assert spool.append(turn(number))
    assert store(spool, OLD) == [0, 1, 2]
    spool.close()
    monkeypatch.setattr(os, "link", refuse)
    assert offered(tmp_path, NEW) == [0, 1, 2]
    assert offered(tmp_path, NEW) == []


def test_a_living_process_offers_what_is_in_its_open_segment_and_goes_on(tmp_path: Path) -> None:
    spool = keeping(tmp_path)
    for number in range(6):
        assert spool.append(turn(number))
    spool.acknowledge(spool.take(4), OLD)
    spool.note_timeline(NEW)
    assert offered(tmp_path, NEW) == [0, 1, 2, 3]
    assert store(spool, NEW) == [4, 5]
    spool.note_timeline(NEWER)
    assert sorted(offered(tmp_path, NEWER)) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 5]
    spool.close()
    assert not [path for path in folders(tmp_path) if path.name != module.FOLDER]


def test_kept_events_do_not_count_as_waiting(tmp_path: Path) -> None:
    spool = keeping(tmp_path)
    for number in range(6):
        assert spool.append(turn(number))
    assert store(spool, OLD) == list(range(6))
    assert spool.pending == 0
    spool.close()
    assert files(tmp_path)
    assert total(process.waiting for process in processes(tmp_path)).events == 0
    assert processes(tmp_path) == []


def test_they_are_deleted_after_their_time_but_not_before_the_server_was_seen(tmp_path: Path) -> None:
    spool = keeping(tmp_path)
    assert spool.append(turn(0))
    assert store(spool, OLD) == [0]
    spool.close()
    (path,) = files(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    os.utime(path, (1, 1))
    assert offered(tmp_path, OLD) == []
    assert not files(tmp_path)


def test_after_the_time_of_the_ledger_nothing_is_offered(tmp_path: Path) -> None:
    spool = keeping(tmp_path)
    assert spool.append(turn(0))
    assert store(spool, OLD) == [0]
    spool.close()
    (path,) = files(tmp_path)
    long_ago = path.stat().st_mtime - DAYS * 86_400 - 60
    os.utime(path, (long_ago, long_ago))
    assert offered(tmp_path, NEW) == []
    assert not files(tmp_path)


def test_an_idle_process_does_not_keep_its_open_segment_for_ever(tmp_path: Path) -> None:
    spool = keeping(tmp_path, keep_s=0.001)
    assert spool.append(turn(0))
    assert store(spool, OLD) == [0]
    spool._stored.at -= 1
    spool.delete_stored()
    assert spool.folder is not None
    assert [path.stat().st_size for path in spool.folder.glob("*.log")] == [0]
    assert spool.append(turn(1))
    die(spool)
    assert offered(tmp_path, OLD) == [1]


@pytest.mark.parametrize("keep_s", [0, 600])
def test_nothing_is_kept_when_it_is_off_or_the_server_tells_no_timeline(
    tmp_path: Path, small_segments: None, keep_s: float
) -> None:
    spool = keeping(tmp_path, keep_s=keep_s)
    for number in range(30):
        assert spool.append(turn(number))
    assert store(spool, OLD if keep_s == 0 else "") == list(range(30))
    spool.close()
    assert not files(tmp_path)
    assert not folders(tmp_path)


def test_kept_events_are_deleted_before_an_event_is_refused(tmp_path: Path, small_segments: None) -> None:
    spool = keeping(tmp_path, bytes_max=6_000, window_max=100)
    for number in range(300):
        assert spool.append(turn(number))
        if number % 5 == 4:
            store(spool, OLD)
        held = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
        assert held <= 6_000 + 1_500
    assert len(files(tmp_path)) >= 2
    for number in range(300, 308):
        assert spool.append(turn(number, size=400))
    assert not spool.append(turn(310, size=3_000))
    assert store(spool, OLD) == list(range(300, 308))
    spool.close()


def test_a_full_disk_is_freed_of_kept_events_first(
    tmp_path: Path, small_segments: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = keeping(tmp_path, window_max=100)
    for number in range(50):
        assert spool.append(turn(number))
    store(spool, OLD)
    assert spool.append(turn(50))
    held = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))

    def write(fd: int, record: bytes) -> int:
        if sum(path.stat().st_size for path in tmp_path.rglob("*.log")) >= held:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(fd, record)

    written = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        assert spool.append(turn(51))
    assert not files(tmp_path)
    assert store(spool, OLD) == [50, 51]
    spool.close()


def test_an_erased_event_is_not_kept_and_the_others_are(tmp_path: Path, small_segments: None) -> None:
    spool = keeping(tmp_path, window_max=100)
    events = [turn(number) for number in range(30)]
    for event in events:
        assert spool.append(event)
    erased = {events[3].id, events[29].id}
    while batch := spool.take(7):
        spool.acknowledge(batch, OLD, erased)
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*.log"))
    assert [event.id.encode() in held for event in events] == [event.id not in erased for event in events]
    spool.close()
    assert offered(tmp_path, NEW) == [number for number in range(30) if number not in (3, 29)]


def test_an_erasure_deletes_what_is_kept_and_blanks_the_rest(tmp_path: Path, small_segments: None) -> None:
    spool = keeping(tmp_path, window_max=100)
    for number in range(30):
        assert spool.append(turn(number))
    store(spool, OLD)
    assert module.clear(tmp_path) > 0
    assert spool.folder is not None
    blank_acknowledged(spool.folder)
    assert b"TurnTaken" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*.log"))
    assert spool.append(turn(30))
    store(spool, OLD)
    spool.close()
    assert offered(tmp_path, NEW) == [30]


def test_a_crash_while_events_are_offered_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = keeping(tmp_path)
    for number in range(3):
        assert spool.append(turn(number))
    store(spool, OLD)
    spool.close()

    def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for name in ("link", "rename", "unlink", "utime"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, crash)
            patch.setattr(Path, name, crash, raising=False)
            with pytest.raises(KeyboardInterrupt):
                offer_again(KeptSegments(tmp_path, keep_s=600, bytes_max=1 << 30), NEW, DAYS)
    assert set(offered(tmp_path, NEW)) == {0, 1, 2}
    assert set(offered(tmp_path, NEWER)) == {0, 1, 2}
