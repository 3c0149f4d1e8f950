from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.recall import utterance


@pytest.mark.parametrize(
    "text",
    [
        "Where is it?", "really?!", "(is it?)", '"Sure?"', "*sure?*", "Where is it?\nAnd when?  Who knows?",
        "数据库在哪里？", "在吗？哪里？", "أين هو؟", "Πού είναι\u037e",
    ],
)  # fmt: skip
def test_a_text_of_questions_asks_from_end_to_end(text: str) -> None:
    assert utterance.asking(text) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    "text", ["", "???a", "It is a question.", "http://host/find?name=x answers.", "a?b", "好吗了。"]
)
def test_a_text_without_a_question_does_not_ask(text: str) -> None:
    assert utterance.asking(text) == 0.0


def test_a_text_asks_as_far_as_it_is_made_of_questions() -> None:
    answer = "The staging database listens on port 5433 and is behind the pooler. " * 4
    assert 0.05 < utterance.asking(answer + "Shall I write that down?") < 0.15
    assert utterance.asking("I moved it. Where to, do you think?") == pytest.approx(0.65, abs=0.1)
    assert utterance.asking("好吗？在。") == pytest.approx(0.6)


@given(st.text(), st.text(alphabet="?？!. \nab", max_size=30))
def test_the_share_of_questions_is_a_share(text: str, more: str) -> None:
    assert 0.0 <= utterance.asking(text + more) <= 1.0


@given(st.text(), st.text())
def test_texts_that_say_the_same_open_the_same(one: str, other: str) -> None:
    for alike in (other, f"  {one.upper()} !", f"«{one}»"):
        assert utterance.said(one) != utterance.said(alike) or utterance.opening(one) == utterance.opening(alike)


def test_case_width_spaces_and_signs_are_not_what_a_text_says() -> None:
    assert utterance.said("  The LAMP,\nis　ｂｒｏｗｎ!") == utterance.said("the lamp is brown") == "the lamp is brown"
    assert utterance.said("??") == "??"
