from __future__ import annotations

import json
from pathlib import Path

import pytest
from hostile import ANY_TEXT
from hypothesis import given

from hermes_memory_pgvector.facts.closing_signals import closes

TABLE = json.loads((Path(__file__).parent.parent / "data" / "closing_signals.json").read_text(encoding="utf-8"))
SENTENCES = [
    (language, sentence, kind) for language, kinds in TABLE.items() for kind in kinds for sentence in kinds[kind]
]


@pytest.mark.parametrize(("language", "sentence", "kind"), SENTENCES)
def test_a_message_closes_when_it_says_that_work_is_done(language: str, sentence: str, kind: str) -> None:
    assert closes(sentence) is (kind == "closes"), language


def test_the_table_has_enough_of_each_language() -> None:
    assert len(TABLE) == 7
    for kinds in TABLE.values():
        assert all(len(set(kinds[kind])) >= 20 for kind in ("closes", "stays_open"))


def test_of_a_long_message_the_beginning_and_the_end_count() -> None:
    filler = "and so on. " * 100_000
    assert closes(f"Merged. {filler}")
    assert closes(f"{filler} It works now.")
    assert not closes(filler)


def test_one_clause_that_says_so_is_enough() -> None:
    assert closes("It works now, but the login of guests is not deployed yet")
    assert closes("Is it merged?\nYes! Merged.")
    assert not closes("Merged? Not yet.")


@given(ANY_TEXT)
def test_any_text_is_judged(text: str) -> None:
    assert closes(text) in (True, False)
