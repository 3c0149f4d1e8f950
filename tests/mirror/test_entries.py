from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.mirror.entries import (
    DELIMITER,
    apply_change,
    diff,
    find_removed,
    parse,
)
from hermes_memory_pgvector.model import Add, Remove, Replace

ENTRIES = st.lists(st.text("ab §\n", min_size=1, max_size=6).map(str.strip).filter(bool), max_size=8)
ENTRY = st.text("abc ", min_size=1, max_size=5).map(str.strip).filter(bool)


def test_a_file_is_split_as_the_host_splits_it() -> None:
    assert parse("one\n§\n two \nlines\n§\n\n§\none\n") == ("one", "two \nlines")
    assert parse("pay § 5\n§\r\nb") == ("pay § 5", "b")
    assert parse("") == parse(" \n") == ()


@given(ENTRIES)
def test_what_the_host_writes_is_read_back(entries: list[str]) -> None:
    parsed = parse(DELIMITER.join(entries))
    # A line that is a delimiter and nothing else divides an entry, for hosts too.
    if not any(line.strip() == "§" for entry in entries for line in entry.split("\n")):
        assert parsed == tuple(dict.fromkeys(entries))


@pytest.mark.parametrize(
    ("file", "snapshot", "expected"),
    [
        (["new"], [], (["new"], [])),
        ([], ["gone"], ([], ["gone"])),
        (["kept"], ["kept"], ([], [])),
        (["b", "a"], ["a", "b"], ([], [])),
        (["new", "kept"], ["kept", "gone"], (["new"], ["gone"])),
    ],
)
def test_diff_reports_added_and_removed_entries(
    file: list[str], snapshot: list[str], expected: tuple[list[str], list[str]]
) -> None:
    assert diff(file, snapshot) == expected


@given(st.lists(ENTRY), st.lists(ENTRY), st.lists(ENTRY))
def test_applying_a_difference_adds_new_and_removes_lost_entries(
    file: list[str], snapshot: list[str], stored: list[str]
) -> None:
    added, removed = diff(file, snapshot)
    rows = (set(stored) - set(removed)) | set(added)
    assert set(file) - set(snapshot) <= rows
    assert not rows & (set(snapshot) - set(file))
    assert rows - set(file) == set(stored) - set(snapshot) - set(file)
    assert diff(file, file) == ([], [])


def host_file(entries: list[str], operation: tuple[str, str, str]) -> list[str] | None:
    """What the host makes of its file; None when it refuses."""
    action, old_text, content = operation
    if action == "add":
        return entries if content in entries else [*entries, content]
    matches = [entry for entry in entries if old_text in entry]
    if len(matches) != 1:
        return None
    at = entries.index(matches[0])
    changed = [*entries[:at], *([content] if action == "replace" else []), *entries[at + 1 :]]
    return list(dict.fromkeys(changed))


@given(st.lists(st.tuples(st.sampled_from(["add", "replace", "remove"]), ENTRY, ENTRY), max_size=12), st.booleans())
def test_the_snapshot_follows_the_file(operations: list[tuple[str, str, str]], told: bool) -> None:
    """`told`: the host says which entry it replaced (one host does); else it is found by comparing."""
    file: list[str] = []
    snapshot: tuple[str, ...] = ()
    for action, old_text, content in operations:
        after = host_file(file, (action, old_text, content))
        if after is None:
            continue
        old = next((entry for entry in file if old_text in entry), "")
        hint = {"previous": old} if told else {"old_text": old_text, "surviving": tuple(after)}
        event: Add | Replace | Remove
        if action == "add":
            event = Add(theme="t", target="memory", content=content)
        elif action == "replace":
            event = Replace(theme="t", target="memory", content=content, **hint)
        else:
            event = Remove(theme="t", target="memory", **hint)
        if action != "add" and not told and old not in after:
            assert find_removed(old_text, snapshot, after) == old
        snapshot, file = apply_change(snapshot, event), after
        assert sorted(snapshot) == sorted(file)


def test_find_removed_takes_substrings_literally() -> None:
    before = ("100% sure", "100 sure", "a_b", "axb")
    assert find_removed("100%", before, before[1:]) == "100% sure"
    assert find_removed("a_b", before, ("axb",)) == "a_b"
    assert find_removed("%", ("abc",), ()) is None


def test_find_removed_returns_none_when_several_entries_match() -> None:
    assert find_removed("tea", ("green tea", "black tea"), ()) is None
    assert find_removed("tea", ("green tea", "black tea"), ("black tea",)) == "green tea"
    assert find_removed("tea", ("green tea",), ("green tea",)) is None
    assert find_removed("  ", ("a",), ()) is None


@given(ENTRY, ENTRIES, ENTRIES)
def test_find_removed_returns_a_removed_entry_or_none(old_text: str, before: list[str], after: list[str]) -> None:
    found = find_removed(old_text, before, after)
    assert found is None or (found in before and found not in after and old_text in found)
