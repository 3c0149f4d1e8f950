"""Writes that wait for approval: durable, bounded, and deleted when nobody approves them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_memory_pgvector.errors import BadArgument, Refused, Unavailable
from hermes_memory_pgvector.outbox.pending_writes import PendingWrite, PendingWrites
from hermes_memory_pgvector.settings import Settings


@pytest.fixture
def store(tmp_path: Path) -> PendingWrites:
    return PendingWrites(tmp_path / "state", Settings(pending_max=5, pending_days=7))


@pytest.fixture
def add(store: PendingWrites) -> Callable[[str], str]:
    return lambda text: store.add(
        "remember",
        {"content": text},
        theme="ops",
        session_id="s1",
        marks={"context": "cron"},
        preview=f"remember: {text}",
    )


def test_a_write_is_read_as_it_was_made_and_the_oldest_comes_first(
    store: PendingWrites, add: Callable[[str], str]
) -> None:
    texts = ["the first \ud800", "a\0b", "𝒳 the last"]
    for place, text in enumerate(texts):
        os.utime(store.folder / f"{add(text)}.json", (place, time.time() - 10 + place))
    found = store.all()
    assert [write.arguments["content"] for write in found] == texts
    assert {(write.tool, write.theme, write.session_id, write.marks["context"]) for write in found} == {
        ("remember", "ops", "s1", "cron")
    }
    assert store.find(found[0].id[:5]) == found[0]
    assert store.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in store.folder.iterdir()} == {0o600}


def test_no_more_writes_wait_than_are_allowed(store: PendingWrites, add: Callable[[str], str]) -> None:
    for number in range(5):
        add(f"number {number}")
    with pytest.raises(Refused, match=r"5 writes wait .* hermes-pgvector pending list"):
        add("one too many")
    store.delete(store.all()[0].id)
    add("there is room again")
    assert len(store.ids()) == 5


def test_a_write_that_nobody_approves_is_deleted(store: PendingWrites, add: Callable[[str], str]) -> None:
    old, new = add("old"), add("new")
    left_behind = store.folder / "abc.json.5f"
    left_behind.write_text("{")
    for path in (store.folder / f"{old}.json", left_behind):
        os.utime(path, (1, time.time() - 8 * 86_400))
    assert store.ids() == [new]
    store.delete_expired()
    assert [path.name for path in store.folder.iterdir()] == [f"{new}.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tool": 1}', '{"tool": "remember", "arguments": []}'])
def test_a_file_that_cannot_be_read_waits_as_one_that_can_only_be_rejected(store: PendingWrites, text: str) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / "0123abcd.json").write_text(text)
    (found,) = store.all()
    assert isinstance(found, PendingWrite)
    assert (found.tool, found.preview) == ("", "(the file cannot be read)")
    store.delete(found.id)
    assert store.all() == []


def test_unknown_and_ambiguous_ids_are_named(store: PendingWrites, add: Callable[[str], str]) -> None:
    add("one")
    with pytest.raises(BadArgument, match="no waiting write 'zzzz'; see: hermes-pgvector pending list"):
        store.find("zzzz")
    with pytest.raises(BadArgument, match="'zz' is too short for the id of a waiting write; give 4 or more characters"):
        store.find("zz")
    for name in ("abcd01", "abcd02"):
        (store.folder / f"{name}.json").write_text("{}")
    with pytest.raises(BadArgument, match="2 waiting writes begin with 'abcd'"):
        store.find("abcd")


def test_one_command_at_a_time_works_on_the_writes(store: PendingWrites, add: Callable[[str], str]) -> None:
    with store.locked():
        add("agents go on")
    with store.locked(), pytest.raises(Unavailable, match="another command works"), store.locked():
        pass


def test_a_write_that_cannot_be_kept_is_not_said_to_wait(store: PendingWrites, add: Callable[[str], str]) -> None:
    store.folder.parent.write_text("a file in place of the folder")
    with pytest.raises(Unavailable, match=r"nothing is changed: .* cannot be written"):
        add("lost")
