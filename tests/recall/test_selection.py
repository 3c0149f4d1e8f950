from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.model import Hit, RecallRequest, Scope
from hermes_memory_pgvector.recall import selection
from hermes_memory_pgvector.recall.selection import comparable
from hermes_memory_pgvector.text.cleaning import compatible

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEXTS = ["it is blue", "It is: BLUE!", "it is red", "Is it red? It is.", "is it blue?", "is it", "?", ""]


def turn(content: str, role: str = "user") -> Hit:
    return Hit(id=0, theme="t", content=content, at=NOON, role=role)


rows = st.builds(
    turn,
    st.sampled_from(TEXTS) | st.integers(0, 99).map("note {}".format),
    st.sampled_from(["user", "assistant", ""]),
)
# What is None is gone from the table when it is fetched.
found = st.lists(st.tuples(st.none() | rows, st.integers(0, 100)), max_size=100)


def request(limit: int, role: str = "") -> RecallRequest:
    return RecallRequest(query="", scope=Scope(own="t", themes=("t",), role=role), limit=limit, budget_s=1)


def select(
    found: Sequence[tuple[Hit | None, int]], asked: RecallRequest, fetches: list[Sequence[int]] | None = None
) -> dict[int, Hit]:
    ranked = sorted(found, key=lambda one: -one[1])
    rows = {key: row for key, (row, _) in enumerate(ranked) if row is not None}

    def fetch(keys: Sequence[int]) -> dict[int, Hit]:
        if fetches is not None:
            fetches.append(keys)
        return {key: rows[key] for key in keys if key in rows}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "FETCHED_MIN", 1)
        best = selection.select(fetch, asked, list(range(len(ranked))))
        return {key: replace(hit, said=said) for key, (hit, said) in best.items()}


@given(found, st.integers(0, 12), st.sampled_from(["", "user"]))
def test_the_best_are_those_of_all_though_few_are_read(
    found: list[tuple[Hit | None, int]], limit: int, role: str
) -> None:
    everything = select(found, request(len(found), role))
    assert all(not role or one.role == role for one in everything.values())
    best = select(found, request(limit, role))
    assert list(best) == list(everything)[:limit]
    assert all(1 <= one.said <= everything[key].said for key, one in best.items())


@given(found, st.integers(1, 12))
def test_no_row_is_read_twice_and_none_behind_those_that_decide(
    found: list[tuple[Hit | None, int]], limit: int
) -> None:
    fetches: list[Sequence[int]] = []
    best = select(found, request(limit), fetches)
    read = [key for keys in fetches for key in keys]
    assert read == list(range(len(read)))
    if len(read) < len(found):
        assert len(best) == limit


def test_few_of_many_are_read() -> None:
    fetches: list[Sequence[int]] = []
    assert len(select([(turn(f"note {number}"), 50) for number in range(1000)], request(5), fetches)) == 5
    assert fetches == [list(range(10))]


def test_what_is_said_often_is_one_hit_with_a_count() -> None:
    told = [(turn("It is BLUE!"), 90), (turn("it is red"), 80), (turn("it is blue"), 70)]
    assert [(one.content, one.said) for one in select(told, request(5)).values()] == [
        ("It is BLUE!", 2),
        ("it is red", 1),
    ]


def test_a_question_keeps_its_place() -> None:
    rows = [(turn("is it blue?"), 90), (turn("what for?", role=""), 80), (turn("it is red"), 50)]
    assert [one.content for one in select(rows, request(5)).values()] == ["is it blue?", "what for?", "it is red"]


def test_case_width_spaces_and_punctuation_do_not_tell_texts_apart() -> None:
    assert comparable("  The LAMP,\nis　ｂｒｏｗｎ!") == comparable("the lamp is brown") == "the lamp is brown"
    assert comparable("??") == "??"


@given(st.text() | st.text(alphabet="aB _-’“ñİßﬁ \u2003\x1c\x85中文,.é\u0301"))
def test_texts_are_compared_by_their_folded_words(text: str) -> None:
    words = re.findall(r"\w+", compatible(text).casefold())
    assert comparable(text) == (" ".join(words) or text)
