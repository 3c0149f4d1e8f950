from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector import utterance


@pytest.mark.parametrize(
    "text",
    [
        "Where is it?", "I moved it. Where to? \n", "really?!", "(is it?)", "Is it 5433? 🙂", "*sure?*",
        "数据库在哪里？", "أين هو؟", "Πού είναι\u037e",
    ],
)  # fmt: skip
def test_a_text_that_ends_in_a_question_asks(text: str) -> None:
    assert utterance.asks(text)


@pytest.mark.parametrize("text", ["", "?" * 3 + "a", "Where is it? On 5433.", "It is a question.", "好吗？在。", "a?b"])
def test_a_text_that_goes_on_behind_its_question_does_not_ask(text: str) -> None:
    assert not utterance.asks(text)


@given(st.text(), st.text(alphabet=" \n\t.,!*)🙂", max_size=50))
def test_what_follows_the_question_mark_without_a_word_changes_nothing(text: str, ending: str) -> None:
    assert utterance.asks(text + "?" + ending)
    assert not utterance.asks(text + "?" + ending + "x")


@given(st.text(), st.text())
def test_texts_that_say_the_same_open_the_same(one: str, other: str) -> None:
    for alike in (other, f"  {one.upper()} !", f"«{one}»"):
        assert utterance.said(one) != utterance.said(alike) or utterance.opening(one) == utterance.opening(alike)


def test_case_width_spaces_and_signs_are_not_what_a_text_says() -> None:
    assert utterance.said("  The LAMP,\nis　ｂｒｏｗｎ!") == utterance.said("the lamp is brown") == "the lamp is brown"
    assert utterance.said("??") == "??"
