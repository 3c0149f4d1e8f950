from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta, timezone

import pytest
from hits import AT, RECALLS, hit
from hostile import assert_harmless
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.model import Period, Recall
from hermes_memory_pgvector.text import sanitize
from hermes_memory_pgvector.tools import answers


def test_an_answer_shows_the_passage_of_a_long_hit_that_answers() -> None:
    content = "filler words " * 500 + "the database password lives in vault seven " + "more filler " * 500
    query = "where is the database password?"
    answer = answers.of_recall(Recall((hit(content),)), query=query, scope="current", chars_max=1_200)
    assert "vault seven" in answer["hits"][0]["content"]
    assert answer["hits"][0]["cut"] is True


def test_a_hit_tells_the_other_side_of_its_turn_and_what_it_is_older_than() -> None:
    first, second = hit("asked", target="", role="user"), hit("told", target="", role="assistant")
    later = AT + timedelta(days=1)
    found = replace(first, side=replace(second, id=2), alike=7, newer=(9, later))
    answer = answers.of_recall(Recall((found, hit("x"))), query="q", scope="all", chars_max=2_000)
    assert answer["count"] == len(answer["hits"]) == 2
    told = answer["hits"][0]
    assert told["side"] == {"id": 2, "role": "assistant", "content": "told"}
    assert told["alike"] == 7
    assert told["older"] == {"than": 9, "time": "2026-11-22T09:30:00Z"}
    assert not {"side", "alike", "older"} & answer["hits"][1].keys()


@given(st.lists(st.tuples(st.integers(0, 3000), st.none() | st.integers(0, 3000)), max_size=30), st.integers(600, 9000))
def test_the_sides_of_turns_have_their_share_of_an_answer(
    lengths: list[tuple[int, int | None]], chars_max: int
) -> None:
    hits = tuple(
        replace(hit("a" * first), side=None if second is None else hit("b" * second)) for first, second in lengths
    )
    answer = answers.of_recall(Recall(hits), query="q", scope="all", chars_max=chars_max)
    assert len(json.dumps(answer, ensure_ascii=False)) <= chars_max
    assert answer["count"] == len(answer["hits"]) == len(hits) - answer.get("left_out", 0)
    for told, one in zip(answer["hits"][:-1], hits, strict=False):
        assert ("side" in told) is (one.side is not None)
        assert told["content"].startswith("a") is bool(one.content)


def test_an_answer_says_which_period_it_favours() -> None:
    period = Period(AT, AT + timedelta(days=7), "last\n week")
    answer = answers.of_recall(Recall(period=period), query="q", scope="all", chars_max=2_000)
    assert answer["period"] == {
        "words": "last week",
        "since": "2026-11-21T09:30:00Z",
        "until": "2026-11-28T09:30:00Z",
        "note": "counted double",
    }
    assert "period" not in answers.of_recall(Recall(), query="q", scope="all", chars_max=2_000)


def test_the_answer_of_a_tool() -> None:
    east = timezone(timedelta(hours=8))
    turn = hit("two\nlines", target="", role="user", session_id="s1", at=AT.astimezone(east))
    turn = replace(turn, similarity=0.87654, words=3.21987, matched=("lines", "two"), said=3)
    recall = Recall((turn, hit("x", score=0.98765)), ("slow",))
    assert answers.of_recall(recall, query="q", scope="all", chars_max=2_000) == {
        "hits": [
            {
                "id": 1, "theme": "billing", "content": "two\nlines", "time": "2026-11-21T09:30:00Z", "score": 0.5,
                "why": {"similarity": 0.877, "words": ["lines", "two"]}, "said": 3, "role": "user", "session_id": "s1",
            },
            {
                "id": 1, "theme": "billing", "content": "x", "time": "2026-11-21T09:30:00Z", "score": 0.988,
                "why": {"similarity": None, "words": []}, "target": "memory", "source": "database",
            },
        ],
        "count": 2, "scope": "all", "query": "q", "degraded": ["slow"],
    }  # fmt: skip


@given(RECALLS, st.integers(2_000, 6_000))
def test_the_answer_of_a_tool_fits_and_is_harmless(recall: Recall, chars_max: int) -> None:
    answer = answers.of_recall(recall, query="a", scope="current", chars_max=chars_max)
    assert len(json.dumps(answer, ensure_ascii=False)) <= chars_max
    assert answer["count"] == len(answer["hits"])
    assert answer["count"] + answer.get("left_out", 0) == len(recall.hits)
    for shown in answer["hits"]:
        assert_harmless(shown["content"])
        assert_harmless(shown["theme"])


def test_long_contents_share_the_room_of_an_answer() -> None:
    hits = (hit('"\n' * 5_000), hit("b" * 5_000), hit("short"))
    answer = answers.of_recall(Recall(hits), query="", scope="current", chars_max=4_000)
    assert [shown.get("cut", False) for shown in answer["hits"]] == [True, True, False]
    assert 3_700 < len(json.dumps(answer, ensure_ascii=False)) <= 4_000
    lengths = [len(json.dumps(shown["content"])) for shown in answer["hits"]]
    assert abs(lengths[0] - lengths[1]) < 50


@pytest.mark.parametrize("chars_max", range(1_400, 4_000, 100))
def test_passages_of_long_contents_fill_the_room_of_an_answer(chars_max: int) -> None:
    content = "lorem ipsum " * 60 + "needle " + "dolor sit " * 60
    answer = answers.of_recall(Recall((hit(content),) * 10), query="needle", scope="current", chars_max=chars_max)
    shown = len(answer["hits"][0]["content"])
    # What is free is no room for one more, nor for a longer word of each.
    frame = len(json.dumps(answer["hits"][0])) - shown
    free = chars_max - len(json.dumps(answer, ensure_ascii=False))
    assert 0 <= free < 10 * len("needle ") + 40 + (frame + 62 if "left_out" in answer else 0)


@pytest.mark.parametrize("count", [1, 3])
def test_contents_without_a_space_leave_no_room_but_that_for_left_out(count: int) -> None:
    for chars_max in range(1_500, 1_520):
        hits = (hit("a" * 5_000),) * count
        answer = answers.of_recall(Recall(hits), query="", scope="current", chars_max=chars_max)
        assert answer["count"] == count
        free = chars_max - len(json.dumps(answer, ensure_ascii=False))
        assert 0 <= free <= len(', "left_out": 1000, ')


@pytest.mark.parametrize("end", ['"', "\\", "\n", "x", "\x01"])
def test_a_content_is_marked_as_cut_if_and_only_if_it_is(end: str) -> None:
    content = f"{'a' * 60}{end}b{end}".strip()
    for chars_max in range(300, 900):
        answer = answers.of_recall(Recall((hit(content),) * 5), query="", scope="current", chars_max=chars_max)
        whole = sanitize.visible(content)
        assert {shown.get("cut", False) == (shown["content"] != whole) for shown in answer["hits"]} <= {True}
        assert len(json.dumps(answer, ensure_ascii=False)) <= chars_max


def test_hits_that_do_not_fit_are_counted() -> None:
    answer = answers.of_recall(Recall((hit("x" * 100),) * 50), query="", scope="current", chars_max=2_000)
    assert answer["count"] + answer["left_out"] == 50


def test_turns_around_a_hit_get_the_room_that_the_hits_leave() -> None:
    beside = tuple(hit(text * 10, target="", role="assistant") for text in ("before ", "after "))
    turn = hit("found", target="", role="user", session_id="s", context=beside)
    (roomy,) = answers.of_recall(Recall((turn,)), query="q", scope="s", chars_max=2_000)["hits"]
    assert [told["content"] for told in roomy["context"]] == [("before " * 10).strip(), ("after " * 10).strip()]
    assert {told["role"] for told in roomy["context"]} == {"assistant"}
    (narrow,) = answers.of_recall(Recall((turn,)), query="q", scope="s", chars_max=420)["hits"]
    assert narrow["content"] == "found"
    assert sum(len(told["content"]) for told in narrow.get("context", ())) < 100


def test_an_answer_does_not_name_the_embedder_that_is_away() -> None:
    recall = Recall((hit("the port is 5432"),), ("by words only: gpu-7.internal:11434 cannot be reached: refused",))
    answer = answers.of_recall(recall, query="q", scope="s", chars_max=900)
    assert answer["degraded"] == ["by words only"]
