from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.model import Hit, Outside, RecallRequest, Scope
from hermes_memory_pgvector.recall import selection
from hermes_memory_pgvector.recall.grouping import Found
from hermes_memory_pgvector.recall.quarantine import mark_of
from hermes_memory_pgvector.store.retrieval import Key, Row
from hermes_memory_pgvector.text.alike import comparable
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
        best = selection.select(fetch, asked, {key: -key for key in range(len(ranked))})
        return {one.key: replace(one.row, said=one.said) for one in best}


@given(found, st.integers(0, 12), st.sampled_from(["", "user"]))
def test_the_best_are_those_of_all_though_few_are_read(
    found: list[tuple[Hit | None, int]], limit: int, role: str
) -> None:
    everything = select(found, request(len(found), role))
    assert all(not role or one.role == role for one in everything.values())
    best = select(found, request(limit, role))
    assert list(best) == list(everything)[:limit]
    assert all(1 <= one.said <= everything[key].said for key, one in best.items())


def test_rows_from_outside_are_no_hits_where_they_are_not_wanted_and_change_no_others() -> None:
    said = turn("The ferry sails at nine.")
    read = replace(said, role="assistant", metadata={"tools": ["web_extract"]})
    told = replace(said, content="The bus leaves at ten.", metadata={"delegated_to": "child"})
    brought = replace(said, content="The train is late.", metadata={"origin": "import"})
    released = replace(
        read, content="It sails daily.", metadata={**read.metadata, "released": mark_of("It sails daily.")}
    )
    ranked = [(read, 9), (told, 8), (said, 7), (brought, 6), (released, 5)]
    assert [(one.content, one.said) for one in select(ranked, replace(request(2), outside=False)).values()] == [
        ("The ferry sails at nine.", 1), ("It sails daily.", 1),
    ]  # fmt: skip
    everything = {one.content: one.said for one in select(ranked, request(9)).values()}
    assert len(everything) == 4
    assert everything["The ferry sails at nine."] == 2


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


def session(*rows: tuple[str, str, float], limit: int = 5, role: str = "") -> list[tuple[str, str]]:
    """What is selected of a session of rows, each with its role, text and score: the texts and those of other sides."""
    keys: list[Key] = [("t", number) for number in range(len(rows))]
    stored = {
        key: Row("t", key[1], text, None, NOON, said_by, "s", "")
        for key, (said_by, text, _) in zip(keys, rows, strict=True)
    }
    scores = {key: score for key, (_, _, score) in zip(keys, rows, strict=True)}
    best = selection.select(
        lambda wanted: {key: stored[key] for key in wanted},
        request(limit, role),
        dict(sorted(scores.items(), key=lambda one: -one[1])),
        dict(zip(keys[1:], keys, strict=False)),
    )
    return [(one.row.content, one.side[1].content if one.side else "") for one in best]


def test_the_sides_of_a_turn_that_both_answer_are_one_hit() -> None:
    turns = [("user", "where is the kelp?", 0.5), ("assistant", "in the shed", 0.9), ("user", "and the frog?", 0.3)]
    assert session(*turns) == [("in the shed", "where is the kelp?"), ("and the frog?", "")]
    assert session(*turns, limit=1) == [("in the shed", "where is the kelp?")]
    assert session(*turns, role="assistant") == [("in the shed", "")]


def test_the_worse_side_of_a_turn_and_the_next_turn_are_hits_of_their_own() -> None:
    turns = [("user", "where is the kelp?", 0.4), ("assistant", "in the shed", 0.9), ("user", "and the frog?", 0.9)]
    assert session(*turns) == [("in the shed", ""), ("and the frog?", ""), ("where is the kelp?", "")]
    turns = [("assistant", "in the shed", 0.9), ("assistant", "or in the barn", 0.9)]
    assert session(*turns) == [("in the shed", ""), ("or in the barn", "")]


def test_an_answer_without_content_leaves_its_place_to_what_it_answers() -> None:
    turns = [("user", "the kelp is in the shed", 0.1), ("assistant", "Noted, I will keep that in mind.", 0.9)]
    assert session(*turns, ("user", "it rains", 0.5)) == [("the kelp is in the shed", ""), ("it rains", "")]
    assert session(*turns, role="assistant") == [("Noted, I will keep that in mind.", "")]
    assert session(*turns[1:]) == [("Noted, I will keep that in mind.", "")]


def test_a_row_that_was_found_by_its_receipt_names_it() -> None:
    asked, receipt = ("t", 0), ("t", 1)
    stored = {
        asked: Row("t", 0, "the kelp is in the shed", None, NOON, "user", "s", ""),
        receipt: Row("t", 1, "Noted.", None, NOON, "assistant", "s", ""),
    }
    for scores in ({receipt: 0.9, asked: 0.1}, {asked: 0.9, receipt: 0.8}):
        best = selection.select(lambda keys: {key: stored[key] for key in keys}, request(5), scores, {receipt: asked})
        assert [(one.key, one.receipt, one.side) for one in best] == [(asked, receipt, None)]


SIDE = timedelta(microseconds=1)
ASKED, READ, AGAIN, REREAD, RAIN = (("t", number) for number in range(5))


def of_pages(tool: str = "web_extract") -> dict[Key, Row]:
    """A question that was asked twice and answered from a page, and a row that nobody asked for."""
    told, later = {"tools": [tool]}, NOON + timedelta(days=1)
    return {
        ASKED: Row("t", 0, "when does it sail?", None, NOON, "user", "s", ""),
        READ: Row("t", 1, "at nine, says the page", told, NOON + SIDE, "assistant", "s", ""),
        AGAIN: Row("t", 2, "When does it sail?", None, later, "user", "r", ""),
        REREAD: Row("t", 3, "at ten, says the page", told, later + SIDE, "assistant", "r", ""),
        RAIN: Row("t", 4, "it rains", None, NOON, "user", "s", ""),
    }


def selected(
    stored: dict[Key, Row], scores: dict[Key, float], outside: Outside = "local", limit: int = 5
) -> list[Found]:
    ranked = dict(sorted(scores.items(), key=lambda one: -one[1]))
    before = {READ: ASKED, REREAD: AGAIN}
    return selection.select(
        lambda keys: {key: stored[key] for key in keys}, replace(request(limit), outside=outside), ranked, before
    )


@pytest.mark.parametrize("outside", get_args(Outside))
@pytest.mark.parametrize(("tool", "source"), [("web_extract", "third parties"), ("read_file", "tools")])
def test_the_question_of_an_answer_that_is_left_out_for_its_source_says_so(
    outside: Outside, tool: str, source: str
) -> None:
    left_out = outside == "none" or (outside == "local" and tool == "web_extract")
    for of_questions in (0.1, 0.95):
        scores = {READ: 0.9, REREAD: 0.8, RAIN: 0.5, ASKED: of_questions, AGAIN: of_questions}
        best = selected(of_pages(tool), scores, outside)
        shown = [(one.row.content, one.said, one.withheld, one.pointer) for one in best]
        if left_out:
            asked, rain = ("when does it sail?", 2, source, False), ("it rains", 1, "", False)
            assert shown == ([rain, asked] if of_questions < 0.5 else [asked, rain])
            [first] = selected(of_pages(tool), scores, outside, limit=1)[:1]
            assert [one.pointer for one in selected(of_pages(tool), scores, outside, limit=1)] == (
                [False, True] if of_questions < 0.5 else [False]
            )
            assert first.row.content == shown[0][0]
        else:
            answers = {one.side[1].content for one in best if one.side} | {one.row.content for one in best}
            assert answers >= {"at nine, says the page", "at ten, says the page"}
            assert not any(one.withheld or one.pointer for one in best)
    alone = selection.select(lambda keys: {READ: of_pages(tool)[READ]}, replace(request(5), outside=outside), {READ: 1})
    assert [one.row.content for one in alone] == ([] if left_out else ["at nine, says the page"])


@pytest.mark.parametrize(
    "scores", [(0.9, 0.8, 0.7), (0.9, 0.7, 0.8), (0.7, 0.9, 0.8), (0.8, 0.7, 0.9), (0.7, 0.8, 0.9)]
)
def test_an_answer_that_is_left_out_is_told_wherever_its_question_stands(scores: tuple[float, ...]) -> None:
    stored = of_pages()
    stored[REREAD] = stored[REREAD]._replace(content="at ten, I think")
    [one, *_] = selected(stored, dict(zip((ASKED, AGAIN, READ), scores, strict=True)))
    assert (one.said, one.withheld, one.receipt, one.pointer) == (2, "third parties", READ, False)


def test_a_question_of_another_turn_is_not_named() -> None:
    stored = of_pages()
    stored[READ] = stored[READ]._replace(at=NOON + timedelta(minutes=1))
    assert selected(stored, {READ: 0.9, RAIN: 0.5, ASKED: 0.4})[-1].withheld == ""
    assert [one.row.content for one in selected(stored, {READ: 0.9, RAIN: 0.5})] == ["it rains"]


def test_questions_that_were_found_by_their_answers_take_no_places_of_others() -> None:
    asked = {
        ("t", 2 * n): Row("t", 2 * n, f"question {n} of many?", None, NOON, "user", f"s{n}", "") for n in range(40)
    }
    read = {
        ("t", 2 * n + 1): Row("t", 2 * n + 1, f"page {n}", {"tools": ["web"]}, NOON, "assistant", f"s{n}", "")
        for n in range(40)
    }
    own = Row("t", 99, "it rains", None, NOON, "user", "s", "")
    stored = {**asked, **read, ("t", 99): own}
    scores = {**{key: 0.9 - number / 1000 for number, key in enumerate(read)}, ("t", 99): 0.5}
    before = {("t", 2 * n + 1): ("t", 2 * n) for n in range(40)}
    best = selection.select(
        lambda keys: {key: stored[key] for key in keys}, replace(request(3), outside="local"), scores, before
    )
    assert [one.row.content for one in best] == ["it rains", "question 0 of many?", "question 1 of many?"]


def test_equal_answers_without_content_are_told_apart_by_what_they_answer() -> None:
    turns = [
        row
        for place in ("shed", "barn", "loft")
        for row in (("user", f"the kelp is in the {place}", 0.1), ("assistant", "Got it.", 0.9))
    ]
    assert len(session(*turns)) == 3


def test_rows_without_groups_are_selected_as_they_are() -> None:
    texts = ["The wiki has 80 pages.", "The wiki has 81 pages."]
    stored = {("t", n): Row("t", n, text, None, NOON + timedelta(n), "", "", "x") for n, text in enumerate(texts)}
    for grouped, order in ((False, [0, 1]), (True, [1, 0])):
        best = selection.select(
            lambda keys: {key: stored[key] for key in keys}, request(5), {("t", 0): 0.9, ("t", 1): 0.8}, grouped=grouped
        )
        assert [one.row.id for one in best] == order


def test_more_of_a_flood_is_read_to_find_what_differs() -> None:
    texts = [f"status of the old bridge: {n} welders on site, weather mild, no blockers" for n in range(300)]
    texts[150] += ", but an otter family delayed the scaffold"
    stored = {("t", n): Row("t", n, text, None, NOON, "", "", "memory") for n, text in enumerate(texts)}
    reads: list[Sequence[Key]] = []

    def fetch(keys: Sequence[Key]) -> dict[Key, Row]:
        reads.append(keys)
        return {key: stored[key] for key in keys}

    best = selection.select(fetch, request(4), {key: -key[1] for key in stored})
    assert texts[150] in [one.row.content for one in best]
    read = [key for keys in reads for key in keys]
    assert len(read) == len(set(read)) == selection.FLOOD_FETCHED_MAX
    # Each time is a round trip.
    assert len(reads) == 2


def test_a_flood_that_is_noticed_late_is_read_to_its_bound() -> None:
    texts = ["it is blue"] * 60 + [f"status of the old bridge: {n} welders on site, no blockers" for n in range(300)]
    stored = {("t", n): Row("t", n, text, None, NOON, "", "", "memory") for n, text in enumerate(texts)}
    read: list[Key] = []

    def fetch(keys: Sequence[Key]) -> dict[Key, Row]:
        read.extend(keys)
        return {key: stored[key] for key in keys}

    selection.select(fetch, request(4), {key: -key[1] for key in stored})
    assert len(read) == selection.FLOOD_FETCHED_MAX


def test_an_entry_that_is_left_out_is_pointed_at_and_marks_no_other() -> None:
    told = {"tools": ["web_extract"], "saves": ["1"]}
    entries = {
        ("t", n): Row("t", n, content, told if n < 3 else None, NOON, "", "", "memory")
        for n, content in enumerate(["it sails at nine", "it rains at ten", "it snows", "it sails at nine"])
    }
    scores = {("t", n): 0.9 - n / 10 for n in range(4)}
    best = selected(entries, scores)
    assert [(one.row.id, one.withheld, one.pointer) for one in best] == [
        (3, "", False), (0, "third parties", True), (1, "third parties", True),
    ]  # fmt: skip
    assert [one.row.id for one in selected(entries, scores, "all", limit=9)] == [0, 1, 2]
