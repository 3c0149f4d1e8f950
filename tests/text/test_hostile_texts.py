"""Texts that are made to take long: no function may hold the interpreter, and with it all agents of a gateway."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from growth import spent
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.recall import selection
from hermes_memory_pgvector.session import capture
from hermes_memory_pgvector.text import cleaning, theme_names, tokenizer

MARKS = "\u0301\u0316"


def asked_words(text: str) -> list[str]:
    return tokenizer.query(text, 64)


@pytest.mark.parametrize(
    "function",
    [
        capture.small_talk, cleaning.without_recalled, tokenizer.document, asked_words, theme_names.normalise,
        selection.comparable,
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "text",
    [
        "?" * 200_000 + "x", "?!" * 100_000 + "x", "? " * 100_000, "? x" * 70_000, "<" + " " * 200_000 + "p>",
        "< /" + "\n" * 200_000, f"key a{MARKS * 50_000}", f"a{MARKS} " * 50_000,
    ],
    ids=["questions", "signs", "spaced", "short", "blanks", "lines", "marks", "words"],
)  # fmt: skip
def test_a_hostile_text_takes_as_long_as_any(function: Callable[[str], object], text: str) -> None:
    plain = "It listens on port 5433. Wer wüsste das? " * (len(text) // 41)
    assert spent(function, text) < 100 * spent(function, plain)


# Letters and marks that compose, Korean and Japanese that do, wide and bold ones.
TEXTS = st.text(st.sampled_from("ae \u0301\u0316\u1112\u1161\u11ab\u304b\u3099\uff21\U0001d41a\n"), max_size=60)


@given(st.lists(TEXTS, min_size=1, max_size=60))
def test_the_normal_form_of_a_long_text_is_that_of_its_words(texts: list[str]) -> None:
    text = " ".join(texts * 20)
    assert cleaning.compatible(text) == unicodedata.normalize("NFKC", text)


def test_a_thousand_characters_without_a_space_are_normal_but_where_they_are_cut() -> None:
    text = "\u304b\u3099" * 5000
    differing = sum(map(str.__ne__, cleaning.compatible(text), unicodedata.normalize("NFKC", text)))
    assert differing == 0
