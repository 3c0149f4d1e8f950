"""The plan of a relief takes no more than it has to, and never what must stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.mirror.abbreviations import abbreviated
from hermes_memory_pgvector.mirror.relief_plan import Plan, Standing, length, plan

NOW = datetime(2026, 11, 25, tzinfo=UTC)

texts = st.text("abc déß漢 \n", min_size=1, max_size=60).map(str.strip).filter(bool)
standings = st.builds(
    Standing,
    changed_at=st.integers(0, 400).map(lambda days: NOW - timedelta(days=days)),
    stays=st.sampled_from(["", "", "it must stay"]),
)
files = st.lists(st.tuples(texts, standings), max_size=20)


def made(entries: list[tuple[str, Standing]], chars_max: int, above_pct: int = 55, to_pct: int = 45) -> Plan:
    known = dict(entries)
    return plan(
        "memory", [entry for entry, _ in entries], known.__getitem__, chars_max=chars_max, above_pct=above_pct,
        to_pct=to_pct, now=NOW,
    )  # fmt: skip


def aged(**days: int) -> list[tuple[str, Standing]]:
    return [(text.replace("_", " "), Standing(changed_at=NOW - timedelta(days=age))) for text, age in days.items()]


@given(files, st.integers(10, 600), st.integers(1, 100), st.integers(0, 100))
def test_every_entry_stays_or_moves_and_no_move_is_needless(
    entries: list[tuple[str, Standing]], chars_max: int, above_pct: int, to_pct: int
) -> None:
    found = made(entries, chars_max, above_pct, min(to_pct, above_pct))
    known = dict(entries)
    moved = [move.entry for move in found.moves]
    assert sorted([*found.after, *moved]) == sorted(known)
    assert list(found.after) == [entry for entry in known if entry not in moved]
    assert not any(known[entry].stays for entry in moved)
    room = found.to_pct * chars_max // 100
    if not found.is_full:
        assert moved == []
    elif found.chars_after > room:
        assert all(known[entry].stays or len(entry) > chars_max // 2 for entry in found.after)
    for entry in moved:
        assert length([entry, *found.after]) > room
    assert not {"", *found.after} & set(moved)
    assert set(found.staying) <= set(found.after)


@given(files, st.integers(10, 600))
def test_a_relieved_file_is_not_relieved_again(entries: list[tuple[str, Standing]], chars_max: int) -> None:
    known = dict(entries)
    found = made(entries, chars_max)
    again = made([(entry, known[entry]) for entry in found.after], chars_max)
    assert not again.changes


def test_of_two_entries_of_one_length_the_older_leaves() -> None:
    found = made(aged(the_first_of_two_notes=3, the_other_of_two_note=30), 60)
    assert [move.entry for move in found.moves] == ["the other of two note"]


def test_of_two_entries_of_one_age_the_longer_leaves() -> None:
    found = made(aged(short_note=9, a_note_that_is_much_longer=9), 60)
    assert [move.entry for move in found.moves] == ["a note that is much longer"]


def test_an_entry_of_more_than_half_of_the_cap_stays() -> None:
    found = made(aged(**{"x" * 51: 900, "y" * 10: 1}), 100)
    assert [move.entry for move in found.moves] == ["y" * 10]
    assert "divide it" in found.staying["x" * 51]


def test_lines_in_fact_notation_leave_first_and_the_rest_of_their_entry_stays() -> None:
    fact = "D[auth]: sessions"
    mixed = f"Notes on the work\n{fact}"
    known = {
        mixed: Standing(changed_at=NOW, facts=(fact,), rest="Notes on the work"),
        "An old note of long ago": Standing(changed_at=NOW - timedelta(days=900)),
    }
    found = plan("user", list(known), known.__getitem__, chars_max=100, above_pct=55, to_pct=50, now=NOW)
    assert [(move.entry, move.facts, move.rest) for move in found.moves] == [(mixed, (fact,), "Notes on the work")]
    assert found.after == ("Notes on the work", "An old note of long ago")


def test_facts_leave_also_where_a_longer_entry_would_make_room_enough() -> None:
    fact, note, other = "V[port]: 5433", "A note that was not changed for long", "Another note, of this morning"
    known = {
        fact: Standing(changed_at=NOW, facts=(fact,)),
        note: Standing(changed_at=NOW - timedelta(days=900)),
        other: Standing(changed_at=NOW),
    }
    found = plan("memory", list(known), known.__getitem__, chars_max=100, above_pct=55, to_pct=50, now=NOW)
    assert found.after == (other,)


def test_what_says_nearly_the_same_is_proposed_and_not_done() -> None:
    one = "The staging database listens on port 5433 of alpha."
    other = "the staging  database listens on port 5433 of Alpha"
    found = made([(text, Standing(changed_at=NOW, stays="kept")) for text in (one, "Lunch is at noon", other)], 150)
    assert [(pair.entry, pair.other) for pair in found.alike] == [(other, one)]
    assert found.after == (one, "Lunch is at noon", other)


def test_near_duplicates_are_found_without_spaces() -> None:
    one, other, third = "测试数据库监听阿尔法主机的端口五四三三", "测试数据库监听阿尔法主机的端口五四三四", "午餐在中午"
    found = made([(text, Standing(changed_at=NOW, stays="kept")) for text in (one, third, other)], 50)
    assert [(pair.entry, pair.other) for pair in found.alike] == [(other, one)]


def test_words_of_prose_are_abbreviated_and_names_are_not() -> None:
    assert (
        abbreviated("The configuration of the production database: see the documentation in `database/configuration`.")
        == "The cfg of the prod db: see the docs in `database/configuration`."
    )
    for text in (
        "/etc/configuration/server.yml", "server.prod.example", "https://example.org/database", '"the server"',
        "server-side", "databasex", "my_database", "DATABASE=production",
    ):  # fmt: skip
        assert abbreviated(text) == text


@given(texts)
def test_an_abbreviated_text_is_never_longer(text: str) -> None:
    assert len(abbreviated(text)) <= len(text)
