from __future__ import annotations

import pytest

from hermes_memory_pgvector.text import tokenizer
from hermes_memory_pgvector.text.function_words import function_words
from hermes_memory_pgvector.text.question_words import question_words


@pytest.mark.parametrize(
    ("question", "left"),
    [
        ("How many times did I mention the kiln?", "kiln times"),
        ("Can you list the order in which I brought up different aspects of the deploy?", "deploy"),
        ("Kannst du bitte zusammenfassen, was wir zum Umzug besprochen haben?", "umzug"),
        ("你能告诉我窑是什么时候的吗?", "告诉 窑"),
    ],
)
def test_words_of_content_are_left(question: str, left: str) -> None:
    words = tokenizer.query(question, 64)
    found = question_words(words)
    assert found <= set(words)
    assert not found & set(left.split())
    assert found - function_words(words)


@pytest.mark.parametrize("text", ["kelp frog lamp", "resume", "db-prod-03", ""])
def test_other_words_do_not_ask(text: str) -> None:
    assert not question_words(tokenizer.query(text, 64))
