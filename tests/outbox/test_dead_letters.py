"""Dead letters in real folders: kept whole, bounded, and found again."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import NoReturn

import pytest

from hermes_memory_pgvector import files
from hermes_memory_pgvector.errors import BadArgument
from hermes_memory_pgvector.outbox import dead_letters
from hermes_memory_pgvector.outbox.dead_letters import UNREADABLE, DeadLetters


def test_a_dead_letter_is_read_whole_and_a_second_with_its_id_replaces_it(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    assert list(letters) == []
    assert letters.keep("b2", "because", 'raw "text" \ud800\0')
    assert letters.keep("a1", "therefore", "")
    assert letters.keep("b2", "because of both", "again")
    assert [(letter.id, letter.reason) for letter in letters] == [("a1", "therefore"), ("b2", "because of both")]
    assert json.loads((tmp_path / "aside" / "b2.json").read_text()) == {"reason": "because of both", "event": "again"}


def test_a_prefix_finds_a_letter_only_when_it_is_long_enough_and_of_one_letter(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    for event_id in ("abcde1", "abcde2", "xyz"):
        letters.keep(event_id, "reason", "raw")
    assert letters.find("abcde1").id == "abcde1"
    assert letters.find("xyz").id == "xyz"
    for prefix, problem in (("abcd", "2 dead letters"), ("xy", "too short"), ("none", "no dead letter")):
        with pytest.raises(BadArgument, match=problem):
            letters.find(prefix)


def test_the_number_of_dead_letters_is_bounded_and_deleting_one_makes_room(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, files_max=4)
    assert [letters.keep(str(number), "r", "e") for number in range(6)] == [True] * 4 + [False] * 2
    assert letters.delete("0")
    assert not letters.delete("0")
    assert not letters.keep("5", "r", "e", share=0.5)
    assert letters.keep("5", "r", "e")
    assert letters.ids() == ["1", "2", "3", "5"]


def test_a_full_folder_is_counted_again_after_a_while_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    letters, counts = DeadLetters(tmp_path, files_max=2), []
    count = DeadLetters._count
    monkeypatch.setattr(DeadLetters, "_count", lambda self: counts.append(self) or count(self))
    moment = time.monotonic()
    monkeypatch.setattr(dead_letters.time, "monotonic", lambda: moment)
    assert [letters.keep(str(number), "r", "e") for number in range(50)] == [True] * 2 + [False] * 48
    assert len(counts) == 1
    (tmp_path / "aside" / "0.json").unlink()
    moment += dead_letters.COUNT_INTERVAL_S
    assert letters.keep("5", "r", "e")


def test_the_bytes_of_dead_letters_are_bounded_over_processes(tmp_path: Path) -> None:
    assert DeadLetters(tmp_path, bytes_max=1000).keep("0", "r", "e" * 600)
    letters = DeadLetters(tmp_path, bytes_max=1000)
    assert [letters.keep(name, "r", "e" * chars) for name, chars in (("1", 600), ("2", 200))] == [False, True]


def test_what_a_full_disk_cut_short_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = DeadLetters(tmp_path, files_max=2)
    with monkeypatch.context() as full:
        full.setattr(files.os, "fdopen", full_disk)
        assert not any(letters.keep(str(number), "r", "e") for number in range(5))
    assert list(letters.folder.iterdir()) == []


def full_disk(fd: int, *_: object, **__: object) -> NoReturn:
    os.close(fd)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_old_temporary_files_of_killed_processes_are_removed_and_take_no_room(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, files_max=2)
    letters.folder.mkdir(parents=True)
    old, young = (letters.folder / f"{name}.json.0f" for name in ("old", "young"))
    for torn in (old, young):
        torn.write_text('{"rea')
    os.utime(old, (0, 0))
    assert [letters.keep(str(number), "r", "e") for number in range(3)] == [True, True, False]
    assert (old.exists(), young.exists()) == (False, True)


@pytest.mark.parametrize("content", ["", "[]", "{}", "5", "null", "[" * 200_000])
def test_a_damaged_file_is_listed_and_hides_no_other(tmp_path: Path, content: str) -> None:
    letters = DeadLetters(tmp_path)
    letters.keep("good", "reason", "raw")
    (tmp_path / "aside" / "bad.json").write_text(content)
    assert [(letter.id, letter.reason) for letter in letters] == [("bad", UNREADABLE), ("good", "reason")]
