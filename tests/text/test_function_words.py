from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.text import tokenizer
from hermes_memory_pgvector.text.function_words import function_words


def content(question: str) -> list[str]:
    words = tokenizer.query(question, 64)
    return [word for word in words if word not in function_words(words)]


@pytest.mark.parametrize(
    ("question", "left"),
    [
        ("Hvem skal have nøglen til kælderen?", "nøglen kælderen"),
        ("Hvor er nøkkelen til kjelleren?", "nøkkelen kjelleren"),
        ("Wie heeft de sleutel van de kelder?", "sleutel kelder"),
        ("Missä kellarin avain on?", "kellarin avain"),
        ("Qui a la clé de la cave ?", "clé cave"),
        ("Wer hat den Schlüssel zum Keller?", "schlüssel keller"),
        ("Chi ha la chiave della cantina?", "chiave cantina"),
        ("Kto ma klucz do piwnicy?", "klucz piwnicy"),
        ("Quem tem a chave da cave?", "chave cave"),
        ("Cine are cheia de la pivniță?", "cheia pivniță"),
        ("У кого ключ от подвала?", "ключ подвала"),
        ("Де ключ від підвалу?", "ключ підвалу"),
        ("¿Quién tiene la llave del sótano?", "llave sótano"),
        ("Vem har nyckeln till källaren?", "nyckeln källaren"),
        ("Forklift salonda en fazla hangi hızla gidebilir?", "forklift salonda hızla gidebilir"),
    ],
)
def test_of_a_question_its_words_of_content_are_left(question: str, left: str) -> None:
    assert content(question) == left.split()


@pytest.mark.parametrize(
    "question",
    [
        "war memorial",
        "Where is my son buried?",
        "bin collection on Monday",
        "db-prod-03 port 5432",
        "谁有钥匙？",
        "die Hard",
    ],
)
def test_a_word_of_content_stays_though_another_language_has_it_as_a_function_word(question: str) -> None:
    words = tokenizer.query(question, 64)
    assert {"war", "son", "bin", "db", "port", "die"} & set(words) <= set(content(question))


@pytest.mark.parametrize(
    ("question", "negation"),
    [
        ("Was soll ich nie essen?", "nie"),
        ("Was ist nicht erlaubt?", "nicht"),
        ("Qu'est-ce que je ne mange pas ?", "pas"),
        ("¿Qué no come ella?", "no"),
        ("O que ele não come?", "não"),
        ("Чего он не ест?", "не"),
        ("Wat mag ik niet eten?", "niet"),
    ],
)
def test_a_negation_is_content(question: str, negation: str) -> None:
    assert negation in content(question)


@given(
    st.lists(
        st.sampled_from(
            ["wann", "ist", "die", "der", "en", "fazla", "hangi", "la", "de", "clé", "数据", "x1", "and", "not"]
        )
    )
)
def test_one_word_shows_no_language(words: list[str]) -> None:
    found = function_words(words)
    assert found <= set(words)
    assert len(found) != 1
