from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spools import die, drained, folders, line, make, numbers, taken_over, turn

from hermes_memory_pgvector.model import Event
from hermes_memory_pgvector.outbox import spool as module
from hermes_memory_pgvector.outbox.codec import frame
from hermes_memory_pgvector.outbox.orphans import orphans
from hermes_memory_pgvector.outbox.segments import Record
from hermes_memory_pgvector.outbox.spool import Spool


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- order, batches, acknowledgement


def test_events_come_out_in_order_whether_from_memory_or_from_disk(tmp_path: Path) -> None:
    spool = make(tmp_path, window_max=5)
    for number in range(20):
        assert spool.append(turn(number))
    assert spool.pending == 20
    assert drained(spool) == list(range(20))
    assert spool.pending == 0
    spool.close()


def test_a_record_too_large_for_the_window_keeps_its_place(tmp_path: Path) -> None:
    spool = make(tmp_path, window_max=5)
    for number in range(9):
        assert spool.append(turn(number, size=module.WINDOW_RECORD_BYTES_MAX if number in (2, 6) else 10))
    assert drained(spool, limit=2) == list(range(9))
    spool.close()


def test_the_window_is_used_again_once_the_disk_has_been_read(tmp_path: Path) -> None:
    spool = make(tmp_path, window_max=2)
    expected = list(range(50))
    found = []
    for number in expected:
        assert spool.append(turn(number))
        if number % 5 == 4:
            found += drained(spool, limit=2)
            assert not spool._on_disk
    assert found == expected
    spool.close()


def test_a_batch_is_given_out_once_until_rewound(tmp_path: Path) -> None:
    spool = make(tmp_path, window_max=3)
    for number in range(8):
        spool.append(turn(number))
    first = spool.take(4)
    spool.acknowledge(first[:2])
    assert numbers(first) + drained_without_acknowledging(spool) == list(range(8))
    spool.rewind()
    spool.append(turn(8))
    assert drained(spool) == list(range(2, 9))
    spool.close()


def test_no_event_counts_as_settled_while_it_is_appended_or_read(tmp_path: Path) -> None:
    class Switching(deque[Record]):
        """Another thread looks at the spool, or reads it, where the interpreter may switch to it."""

        def append(self, record: Record) -> None:
            settled.append(spool.appended - spool.pending)
            super().append(record)

        def __len__(self) -> int:
            length = super().__len__()
            if reading:
                reading.pop()
                assert numbers(spool.take(9)) == [1, 2]
            return length

    settled: list[int] = []
    reading: list[bool] = []
    spool = make(tmp_path, window_max=1)
    spool._held = Switching()
    for number in range(3):
        assert spool.append(turn(number))
    assert numbers(spool.take(9)) == [0]
    reading.append(True)
    assert spool.pending >= 3
    assert spool.pending == 3
    assert settled == [0]
    spool.close()


def drained_without_acknowledging(spool: Spool) -> list[int]:
    found = []
    while batch := spool.take(3):
        found += numbers(batch)
    return found


@pytest.mark.parametrize("window_max", [1, 4, 10_000])
def test_order_holds_under_many_writers_and_a_reader(
    tmp_path: Path, window_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 4_000)
    monkeypatch.setattr(module, "WINDOW_RECORD_BYTES_MAX", 600)
    writers, each = 4, 300
    spool = make(tmp_path, window_max=window_max)

    def write(writer: int) -> None:
        for number in range(each):
            assert spool.append(turn(writer * 10_000 + number, size=500 if number % 7 == 0 else 10))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < writers * each and time.monotonic() < deadline:
        batch = spool.take(16)
        assert all(taken.event is not None for taken in batch)
        if len(found) % 5 == 0:
            spool.rewind()
            batch = spool.take(9)
        found += numbers(batch)
        spool.acknowledge(batch)
    for thread in threads:
        thread.join()
    for writer in range(writers):
        assert [number for number in found if number // 10_000 == writer] == [
            writer * 10_000 + number for number in range(each)
        ]
    assert (spool.pending, spool.take(1)) == (0, [])
    assert len(list(tmp_path.glob("*/*.log"))) == 1
    spool.close()
    assert not folders(tmp_path)


def test_segments_roll_over_and_spent_ones_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 1_000)
    spool = make(tmp_path, window_max=2)
    for number in range(30):
        assert spool.append(turn(number))
    assert spool.folder is not None
    assert len(list(spool.folder.glob("*.log"))) > 5
    assert drained(spool, limit=4) == list(range(30))
    (last,) = spool.folder.glob("*.log")
    assert last.stat().st_size < 1_000 + len(frame(turn(0)))
    assert spool.append(turn(30))
    die(spool)
    assert taken_over(tmp_path) == [30]


# --- bounds and full disks


def test_past_the_bound_events_are_refused_until_room_is_made(tmp_path: Path) -> None:
    size = len(frame(turn(0)))
    spool = make(tmp_path, bytes_max=10 * size, window_max=3)
    accepted = [spool.append(turn(number)) for number in range(15)]
    assert accepted == [True] * 10 + [False] * 5
    assert spool.pending == 10
    spool.acknowledge(spool.take(3))
    assert spool.append(turn(90))
    assert drained(spool) == [3, 4, 5, 6, 7, 8, 9, 90]
    assert spool.append(turn(91))
    assert drained(spool) == [91]
    spool.close()


def test_the_bound_holds_across_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 1_000)
    spool = make(tmp_path, bytes_max=5_000, window_max=3)
    number = 0
    while spool.append(turn(number)):
        number += 1
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    assert 3_000 < on_disk < 6_500
    assert drained(spool) == list(range(number))
    assert spool.append(turn(number))
    spool.close()


def test_the_bound_holds_for_records_larger_than_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 1_000)
    spool = make(tmp_path, bytes_max=10_000, window_max=1)
    assert [spool.append(turn(number, size=3_000)) for number in range(6)] == [True] * 3 + [False] * 3
    spool.acknowledge(spool.take(1))
    assert spool.append(turn(6, size=3_000))
    assert not spool.append(turn(7, size=3_000))
    assert drained(spool) == [1, 2, 6]
    spool.close()


def test_a_disk_that_is_full_of_what_is_stored_takes_events_again(
    tmp_path: Path, child: Callable[..., subprocess.Popen[str]]
) -> None:
    process = child(
        tmp_path,
        """
        import resource
        from hermes_memory_pgvector.outbox.codec import frame
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(frame(turn(0))) * 7 // 2, most))
        accepted = [n for n in range(6) if spool.append(turn(n))]
        spool.acknowledge(spool.take(2))
        accepted += [n for n in range(6, 8) if spool.append(turn(n))]
        spool.acknowledge(spool.take(1))
        accepted += [n for n in range(8, 13) if spool.append(turn(n))]
        print(accepted, spool.pending, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert line(process) == "[0, 1, 2, 8, 9, 10] 3"
    process.wait()
    assert taken_over(tmp_path) == [8, 9, 10]


@pytest.mark.parametrize("pending", [False, True])
def test_a_disk_that_is_full_of_stored_segments_takes_events_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pending: bool
) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 1_000)
    spool = make(tmp_path)
    size = len(frame(turn(0)))
    while spool._end.offset < 1_000:
        assert spool.append(turn(0))

    def write(fd: int, record: bytes) -> int:
        if sum(path.stat().st_size for path in tmp_path.rglob("*.log")) > 900:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(fd, record)

    written = os.write
    monkeypatch.setattr(os, "write", write)
    # A refused event may have begun the next segment before the others were stored.
    assert not (pending and spool.append(turn(1)))
    drained(spool)
    accepted = [number for number in range(2, 20) if spool.append(turn(number))]
    assert len(accepted) == 900 // size + 1
    die(spool)
    assert taken_over(tmp_path) == accepted


def test_refusals_are_logged_once_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = make(tmp_path, bytes_max=1_000)
    with caplog.at_level("WARNING", logger="hermes.pgvector"):
        assert not any(spool.append(turn(number, size=2_000)) for number in range(20))
    assert len(caplog.records) == 1
    spool.close()


def test_an_event_larger_than_the_bound_is_refused_and_harmless(tmp_path: Path) -> None:
    spool = make(tmp_path, bytes_max=1_000)
    assert not spool.append(turn(1, size=2_000))
    assert spool.append(turn(2))
    assert drained(spool) == [2]
    spool.close()


@pytest.mark.parametrize("fsync", [False, True])
def test_a_short_write_is_cut_back_and_later_events_are_kept(
    tmp_path: Path, child: Callable[..., subprocess.Popen[str]], fsync: bool
) -> None:
    process = child(
        tmp_path,
        f"""
        import resource
        spool = Spool(folder, bytes_max=1 << 30, window_max=1, fsync={fsync})
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        spool.append(turn(0))
        size = os.stat(next(folder.glob("*/*.log"))).st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size * 5 // 2, most))
        accepted = [n for n in range(1, 6) if spool.append(turn(n))]
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        accepted += [n for n in range(6, 9) if spool.append(turn(n))]
        taken = spool.take(9) + spool.take(9)
        print(accepted, spool.pending, [int(item.event.user) for item in taken], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert line(process) == "[1, 6, 7, 8] 5 [0, 1, 6, 7, 8]"
    process.wait()
    assert taken_over(tmp_path) == [0, 1, 6, 7, 8]


@pytest.mark.parametrize("call", ["open", "close", "write", "fsync"])
@pytest.mark.parametrize("segment_bytes_max", [1, 1_000_000])
def test_ctrl_c_in_a_hook_costs_no_event_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, segment_bytes_max: int
) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", segment_bytes_max)
    spool = make(tmp_path, window_max=1, fsync=True)
    accepted = [number for number in range(3) if spool.append(turn(number))]
    finish = getattr(os, call)

    def interrupted(*arguments: Any) -> None:
        finish(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, call, interrupted)
        with contextlib.suppress(KeyboardInterrupt):
            accepted += [3] if spool.append(turn(3, size=20_000)) else []
    accepted += [number for number in range(4, 7) if spool.append(turn(number, size=20_000))]
    assert accepted[-3:] == [4, 5, 6]
    assert drained(spool, limit=2) == accepted
    assert (spool.pending, spool.appended) == (0, len(accepted))
    spool.close()
    assert not folders(tmp_path)


def test_a_segment_that_cannot_be_made_refuses_the_event_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 1)
    spool = make(tmp_path, window_max=2)
    for number in range(3):
        assert spool.append(turn(number))
    assert spool.folder is not None
    in_the_way = spool.folder / f"{spool._end.segment + 1:08d}.log"
    in_the_way.mkdir()
    assert not spool.append(turn(3))
    in_the_way.rmdir()
    assert spool.append(turn(4))
    assert drained(spool) == [0, 1, 2, 4]
    spool.close()


def test_a_folder_that_cannot_be_made_refuses_the_event_and_recovers(tmp_path: Path) -> None:
    parent = tmp_path / "spool"
    parent.write_text("in the way")
    spool = make(parent)
    assert not spool.append(turn(0))
    assert spool.pending == 0
    parent.unlink()
    assert spool.append(turn(1))
    assert drained(spool) == [1]
    spool.close()


# --- files


def test_files_are_private_and_gone_after_a_clean_close(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        spool = make(tmp_path / "state" / "spool")
        for number in range(20):
            spool.append(turn(number))
        spool.acknowledge(spool.take(3))
    finally:
        os.umask(before)
    assert spool.folder is not None
    assert mode(tmp_path / "state") == mode(tmp_path / "state" / "spool") == mode(spool.folder) == 0o700
    files = {path.name: mode(path) for path in spool.folder.iterdir()}
    assert set(files) == {"lock", "acknowledged", "00000001.log"}
    assert set(files.values()) == {0o600}
    assert drained(spool) == list(range(3, 20))
    spool.close()
    assert not list((tmp_path / "state" / "spool").iterdir())


def test_nothing_is_made_before_the_first_event(tmp_path: Path) -> None:
    spool = make(tmp_path / "spool")
    assert spool.take(5) == []
    spool.rewind()
    spool.close()
    assert not (tmp_path / "spool").exists()


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    spool = make(tmp_path)
    spool.append(turn(1))
    drained(spool)
    spool.close()
    spool.close()


def test_what_is_pending_at_close_is_an_orphan_afterwards(tmp_path: Path) -> None:
    spool = make(tmp_path)
    for number in range(12):
        spool.append(turn(number))
    spool.acknowledge(spool.take(5))
    spool.take(2)
    spool.close()
    assert taken_over(tmp_path) == list(range(5, 12))
    assert not folders(tmp_path)


def test_a_spool_that_was_closed_begins_anew_with_the_next_event(tmp_path: Path) -> None:
    spool = make(tmp_path, window_max=2)
    for number in range(6):
        spool.append(turn(number))
    late = spool.take(4)
    spool.close()
    assert spool.append(turn(6))
    # A batch of the folder that was closed is settled late: it says nothing about the new one.
    spool.acknowledge(late)
    assert spool.take(9)[0].event == turn_in(spool)
    spool.rewind()
    spool.append(turn(7))
    die(spool)
    assert sorted(taken_over(tmp_path)) == [0, 1, 2, 3, 4, 5, 6, 7]


def turn_in(spool: Spool) -> Event | None:
    """The first event on disk, read by itself."""
    from hermes_memory_pgvector.outbox.segments import Position, read_records

    assert spool.folder is not None
    return read_records(spool.folder, Position(1, 0), spool._end, 1)[0].event


def test_a_reused_spool_counts_what_it_left_behind(tmp_path: Path) -> None:
    spool = make(tmp_path)
    for number in range(3):
        spool.append(turn(number))
    spool.close()
    assert (spool.pending, spool.left_behind) == (0, 3)
    spool.append(turn(3))
    assert (spool.pending, spool.left_behind) == (1, 3)
    spool.close()
    assert sorted(taken_over(tmp_path)) == [0, 1, 2, 3]


def test_a_reused_spool_counts_only_what_it_can_give_out(tmp_path: Path) -> None:
    spool = make(tmp_path)
    spool.append(turn(0))
    spool.close()
    spool.append(turn(1))
    assert drained(spool) == [1]
    assert spool.pending == 0
    spool.close()
    assert taken_over(tmp_path) == [0]


def test_what_was_taken_before_a_close_acknowledges_nothing_that_came_after(tmp_path: Path) -> None:
    spool = make(tmp_path)
    for number in range(2):
        spool.append(turn(number))
    earlier = [spool.take(1), spool.take(1)]
    spool.close()
    spool.append(turn(2, size=10_000))
    assert numbers(spool.take(1)) == [2]
    for batch in earlier:
        spool.acknowledge(batch)
    assert spool.pending == 1
    die(spool)
    assert taken_over(tmp_path) == [0, 1, 2]


def test_a_spool_closed_while_it_is_read_gives_out_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = make(tmp_path, window_max=0)
    for number in range(3):
        spool.append(turn(number, size=1000))
    read = module.read_records

    def read_slowly(*arguments: Any) -> list[Record]:
        batch = read(*arguments)
        spool.close()
        return batch

    with monkeypatch.context() as patched:
        patched.setattr(module, "read_records", read_slowly)
        spool.acknowledge(spool.take(10))
    spool.append(turn(3))
    assert (numbers(spool.take(10)), spool.pending) == ([3], 1)


@pytest.mark.parametrize("step", ["segments", "save_acknowledged"])
def test_a_spool_closed_while_it_acknowledges_leaves_the_rest_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    spool = make(tmp_path)
    for number in range(4):
        spool.append(turn(number))
    batch = spool.take(2)
    go_on = getattr(module, step)

    def close_before(*arguments: Any) -> Any:
        monkeypatch.setattr(module, step, go_on)
        spool.close()
        return go_on(*arguments)

    monkeypatch.setattr(module, step, close_before)
    spool.acknowledge(batch)
    assert taken_over(tmp_path) == [2, 3]


def test_damage_on_disk_does_not_leave_the_spool_pending_for_ever(tmp_path: Path) -> None:
    spool = make(tmp_path, window_max=1)
    for number in range(5):
        spool.append(turn(number))
    assert spool.folder is not None
    path = spool.folder / "00000001.log"
    data = bytearray(path.read_bytes())
    size = len(frame(turn(0)))
    data[size : 3 * size] = bytes(2 * size)
    path.write_bytes(data)
    assert drained(spool) == [0, 3, 4]
    assert spool.pending == 0
    spool.close()
    assert not folders(tmp_path)


# --- a folder that is deleted while its process runs


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_events_in_memory_outlive_their_folder_and_the_others_are_counted_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    spool = make(tmp_path / "spool", window_max=4)
    for number in range(10):
        spool.append(turn(number))
    spool.acknowledge(spool.take(1))
    earlier = spool.take(2)
    if how == "deleted":
        shutil.rmtree(tmp_path / "spool")
    else:
        (tmp_path / "spool").rename(tmp_path / "moved")
    if how == "replaced":
        shutil.copytree(tmp_path / "moved", tmp_path / "spool")
    with caplog.at_level("ERROR", logger="hermes.pgvector"):
        assert spool.append(turn(10))
        assert spool.append(turn(11))
    assert caplog.text.count("6 events are lost, 3 in memory are still to be stored") == 1
    assert (spool.appended, spool.pending, spool.left_behind) == (12, 5, 6)
    if how == "replaced":
        assert taken_over(tmp_path / "spool") == list(range(1, 10)), "the copy belongs to no process"
    assert len(folders(tmp_path / "spool")) == 1
    assert numbers(earlier) == [1, 2]
    spool.rewind()
    assert drained(spool, limit=2) == [1, 2, 3, 10, 11]
    assert spool.pending == 0
    spool.close()
    assert not folders(tmp_path / "spool")
    assert len(caplog.records) == 1


def test_a_new_folder_gives_its_events_to_an_orphan_when_the_process_dies(tmp_path: Path) -> None:
    spool = make(tmp_path, window_max=2)
    for number in range(3):
        spool.append(turn(number))
    shutil.rmtree(str(spool.folder))
    for number in range(3, 9):
        assert spool.append(turn(number))
    spool.acknowledge(spool.take(2))
    spool.acknowledge(spool.take(2))
    die(spool)
    assert taken_over(tmp_path) == [5, 6, 7, 8]


def test_reading_notices_that_the_folder_was_deleted_and_waits_for_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = make(tmp_path, window_max=0)
    for number in range(3):
        spool.append(turn(number))
    shutil.rmtree(str(spool.folder))
    assert spool.take(10) == []
    assert "3 events are lost" in caplog.text
    assert (spool.pending, spool.left_behind) == (0, 3)
    assert spool.ensure_folder() is not None
    spool.close()
    assert len(caplog.records) == 1


def test_events_in_memory_that_are_not_stored_before_the_close_are_counted_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = make(tmp_path, window_max=5)
    for number in range(3):
        spool.append(turn(number))
    spool.take(1)
    shutil.rmtree(str(spool.folder))
    spool.append(turn(3))
    spool.close()
    assert "3 events were not stored in time and are lost" in caplog.text
    assert (spool.pending, spool.left_behind) == (0, 4)
    assert taken_over(tmp_path) == [3]


def test_the_bound_counts_only_the_new_folder(tmp_path: Path) -> None:
    size = len(frame(turn(0)))
    spool = make(tmp_path, bytes_max=3 * size, window_max=1)
    assert [spool.append(turn(number)) for number in range(4)] == [True] * 3 + [False]
    shutil.rmtree(str(spool.folder))
    assert [spool.append(turn(number)) for number in range(4, 8)] == [True] * 3 + [False]
    assert drained(spool) == [0, 4, 5, 6]
    assert spool.append(turn(8))
    spool.close()


def test_a_deleted_folder_that_cannot_be_made_again_refuses_events(tmp_path: Path) -> None:
    parent = tmp_path / "spool"
    spool = make(parent)
    assert spool.append(turn(0))
    shutil.rmtree(parent)
    parent.write_text("in the way")
    assert not spool.append(turn(1))
    parent.unlink()
    assert spool.append(turn(2))
    assert drained(spool) == [0, 2]
    spool.close()
    assert not folders(parent)


# --- the death of a process


def test_every_accepted_event_survives_a_kill(tmp_path: Path, child: Callable[..., subprocess.Popen[str]]) -> None:
    process = child(
        tmp_path,
        """
        for n in range(500):
            spool.append(turn(n, size=n * 10))
        spool.acknowledge(spool.take(3))
        print("ready", flush=True)
        time.sleep(60)
        """,
    )
    assert line(process) == "ready"
    assert list(orphans(tmp_path)) == [], "the owner is alive"
    process.kill()
    process.wait()
    assert taken_over(tmp_path) == list(range(3, 500))
    assert not folders(tmp_path)


def test_a_forked_child_does_not_keep_its_parents_spool(
    tmp_path: Path, child: Callable[..., subprocess.Popen[str]]
) -> None:
    process = child(
        tmp_path,
        """
        for n in range(10):
            spool.append(turn(n))
        if os.fork() == 0:
            spool.abandon()
            assert (spool.pending, spool.take(5), spool.folder) == (0, [], None)
            spool.append(turn(100))
            print(os.getpid(), spool.folder.name, flush=True)
            time.sleep(60)
        time.sleep(60)
        """,
    )
    pid, name = line(process).split()
    try:
        assert list(orphans(tmp_path)) == []
        process.kill()
        process.wait()
        assert taken_over(tmp_path) == list(range(10))
        assert [path.name for path in folders(tmp_path)] == [name]
    finally:
        os.kill(int(pid), signal.SIGKILL)
    deadline = time.monotonic() + 20
    while (found := taken_over(tmp_path)) != [100]:
        assert not found
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_crash_at_any_step_repeats_nothing_acknowledged_and_loses_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 1_000)
    appended: list[int] = []
    stored: list[int] = []
    crashes: list[tuple[Path, list[int], list[int]]] = []
    spool = make(tmp_path / "live", window_max=3)

    def crash() -> None:
        copy = tmp_path / f"copy-{len(crashes)}"
        if (tmp_path / "live").exists():
            shutil.copytree(tmp_path / "live", copy)
            crashes.append((copy, list(appended), list(stored)))

    def step(name: str) -> None:
        done = getattr(module, name)

        def wrapped(*arguments: Any) -> Any:
            crash()
            result = done(*arguments)
            crash()
            return result

        monkeypatch.setattr(module, name, wrapped)

    step("save_acknowledged")
    step("segments")
    unlink = Path.unlink

    def unlink_and_crash(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        if path.is_relative_to(tmp_path / "live"):
            crash()

    monkeypatch.setattr(Path, "unlink", unlink_and_crash)
    number = 0
    for take in (1, 4, 0, 9, 30, 2, 2, 30):
        for _ in range(6):
            assert spool.append(turn(number))
            appended.append(number)
            number += 1
        crash()
        if take:
            batch = spool.take(take)
            settled = numbers(batch)
            before = len(crashes)
            spool.acknowledge(batch)
            # While the position is being saved, the batch may or may not be repeated.
            crashes[before:] = [(copy, have, [*stored, *settled]) for copy, have, _ in crashes[before:]]
            stored += settled
        crash()
    monkeypatch.undo()
    assert len(crashes) > 40
    for copy, have, done in crashes:
        found = taken_over(copy)
        assert not set(have) - set(done) - set(found), "lost"
        assert found == sorted(set(found)), "out of order or twice"
        assert len(set(found) & set(done)) <= 30, "repeats no more than the batch of the crash"
        assert not folders(copy), "left behind for ever"
    spool.close()


def test_a_crash_right_after_a_segment_was_begun_leaves_no_folder_that_stays_for_ever(tmp_path: Path) -> None:
    spool = make(tmp_path)
    spool.append(turn(1))
    assert drained(spool) == [1]
    assert spool.folder is not None
    (spool.folder / "00000002.log").touch()
    die(spool)
    assert taken_over(tmp_path) == []
    assert not folders(tmp_path)


def test_a_segment_that_somebody_cut_short_is_skipped_once(tmp_path: Path) -> None:
    spool = make(tmp_path, window_max=1)
    for number in range(5):
        spool.append(turn(number))
    assert spool.folder is not None
    os.truncate(spool.folder / "00000001.log", 2 * len(frame(turn(0))))
    found = [spool.take(50), spool.take(50), spool.take(50)]
    assert [numbers(batch) for batch in found] == [[0], [1], []]
    assert len(found[1]) == 2
    for batch in found:
        spool.acknowledge(batch)
    assert spool.pending == 0
    spool.append(turn(5))
    spool.append(turn(6))
    spool.close()


def test_a_sync_covers_every_segment_that_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 1_000)
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(os.readlink(f"/proc/self/fd/{fd}"))))
    spool = make(tmp_path / "home" / "spool")
    spool.sync()
    assert synced == []
    for number in range(12):
        assert spool.append(turn(number, size=300))
    spool.acknowledge(spool.take(5))
    spool.sync()
    assert spool.folder is not None
    left = sorted(spool.folder.glob("*.log"))
    assert len(left) > 1
    assert synced == [*left, spool.folder, spool.parent, spool.parent.parent]
    spool.close()


def test_a_sync_fails_when_events_are_in_memory_only(tmp_path: Path) -> None:
    spool = make(tmp_path)
    assert spool.append(turn(0))
    assert spool.folder is not None
    shutil.rmtree(spool.folder)
    with pytest.raises(OSError, match="in memory only"):
        spool.sync()
    assert drained(spool) == [0]
    spool.sync()
    spool.close()
