from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_memory_pgvector.mirror import off_record_entries as module
from hermes_memory_pgvector.mirror.off_record_entries import OffRecordEntries


def test_entries_are_kept_for_other_processes_until_they_are_forgotten(tmp_path: Path) -> None:
    one, other = OffRecordEntries(tmp_path / "pgvector"), OffRecordEntries(tmp_path / "pgvector")
    one.add("memory", ["the PIN is 9921", "the key is under the mat"])
    assert other.among("memory", ["kelp", "the PIN is 9921", "the key is under the mat"]) == (
        "the PIN is 9921", "the key is under the mat"
    )  # fmt: skip
    assert other.among("user", ["the PIN is 9921"]) == ()
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [(path.read_text(), path.stat().st_mode & 0o77) for path in paths] == [("", 0)] * 2
    assert not any("PIN" in str(path) for path in paths)
    other.remove_all_but(one.names("memory"), "memory", ["kelp", "the PIN is 9921"])
    assert one.among("memory", ["the PIN is 9921", "the key is under the mat"]) == ("the PIN is 9921",)
    other.remove("memory", ["the PIN is 9921"])
    assert one.names("memory") == frozenset()


def test_the_oldest_of_too_many_entries_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 3)
    entries = OffRecordEntries(tmp_path)
    for number, entry in enumerate("dcba"):
        before = entries.names("memory")
        entries.add("memory", [entry])
        (name,) = entries.names("memory") - before
        os.utime(tmp_path / "unrecorded" / name, (number, number))
    entries.add("memory", ["a"])
    assert OffRecordEntries(tmp_path).among("memory", "abcd") == ("a", "b", "c")


def test_entries_of_a_home_that_cannot_be_written_are_kept_by_the_process_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = OffRecordEntries(tmp_path)
    (tmp_path / "unrecorded").symlink_to("nowhere")
    entries.add("memory", ["the PIN is 9921"])
    assert entries.among("memory", ["kelp", "the PIN is 9921"]) == ("the PIN is 9921",)
    assert f"make {tmp_path / 'unrecorded'} writable" in caplog.text
    assert "9921" not in caplog.text
    entries.remove("memory", ["the PIN is 9921"])
    assert entries.names("memory") == frozenset()
