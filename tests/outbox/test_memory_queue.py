"""The queue of a home that cannot be written, and when it is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spools import drained, numbers, turn

from hermes_memory_pgvector.outbox.memory_queue import MemoryQueue, open_outbox
from hermes_memory_pgvector.outbox.spool import Spool
from hermes_memory_pgvector.settings import Settings


def test_a_home_that_cannot_be_written_gets_a_memory_queue(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level("WARNING", logger="hermes.pgvector"):
        spool = open_outbox(tmp_path / "file" / "spool", Settings())
    assert isinstance(spool, MemoryQueue)
    assert "events are kept in memory" in caplog.text


def test_a_memory_queue_keeps_order_and_its_bound(tmp_path: Path) -> None:
    spool = MemoryQueue(tmp_path, bytes_max=0, window_max=4)
    assert [spool.append(turn(number)) for number in range(6)] == [True] * 4 + [False] * 2
    first = spool.take(2)
    assert numbers(first) == [0, 1]
    assert not spool.append(turn(6)), "what is taken still counts"
    spool.acknowledge(first[:1])
    assert spool.append(turn(7))
    spool.rewind()
    assert drained(spool, limit=2) == [1, 2, 3, 7]
    assert spool.pending == 0
    spool.close()


def test_a_memory_queue_is_empty_in_a_forked_child(tmp_path: Path) -> None:
    spool = MemoryQueue(tmp_path, bytes_max=0, window_max=4)
    for number in range(3):
        spool.append(turn(number))
    spool.take(2)
    spool.abandon()
    spool.rewind()
    assert (spool.pending, spool.take(5)) == (0, [])


def test_a_folder_that_can_be_written_gets_a_spool_on_disk(tmp_path: Path) -> None:
    spool = open_outbox(tmp_path / "a" / "b", Settings(spool_fsync=True))
    assert type(spool) is Spool
    assert spool.append(turn(1))
    assert json.loads(json.dumps(drained(spool))) == [1]
    spool.close()
