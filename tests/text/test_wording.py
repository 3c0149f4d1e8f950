"""Which texts have the same words, and which may say the same in other words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.text.wording import wording

TEXTS = st.text(st.characters(exclude_categories=()), max_size=60)
PLAIN_WORDS = st.lists(st.sampled_from("staging runs here with postgres behind pgbouncer today".split()), min_size=1)  # noqa: SIM905


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("User prefers dark mode.", "The user prefers dark mode"),
        ("- Staging runs on port 5433.", "staging   runs\non port 5433!"),
        ("The “staging” host", "the `staging` host,"),
        ("It’s Bob", "it's Bob"),
        ("(see `staging`).", "see staging"),
        ("C’est fini !", "C’est fini!"),
        ("cafe\u0301 is closed", "café is closed"),
        ("用户喜欢茶。", "用户喜欢茶"),
    ],
)
def test_case_punctuation_and_line_breaks_make_no_difference(one: str, other: str) -> None:
    assert wording(one).key == wording(other).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("staging port 5432", "staging port 5433"),
        ("User likes tea", "User does not like tea"),
        ("User likes tea", "User doesn't like tea"),
        ("User likes tea", "User dislikes tea"),
        ("Backups are enabled", "Backups are disabled"),
        ("Feature flags are on", "Feature flags are off"),
        ("We deploy on Monday", "We deploy on Tuesday"),
        ("copy it from A to B", "copy it from B to A"),
        ("the key is user_id", "the key is team_id"),
        ("set $PATH first", "set $HOME first"),
        ("written in C", "written in C++"),
        ("x >= 5", "x <= 5"),
        ("10²", "102"),
        ("-5 degrees", "5 degrees"),
        ("version 1.5", "version 15"),
        ("staging is down?", "staging is down"),
        ("status ✅", "status ❌"),
        ("Der Nutzer mag Tee", "Der Nutzer mag keinen Tee"),
        ("用户喜欢茶", "用户不喜欢茶"),
        ("お茶が好き", "お茶が好きではない"),
        ("columns are split at ;", "columns are split at :"),
        ("columns are split at `;`", "columns are split at `,`"),
        ("columns are split at ','", "columns are split at ';'"),
        ("call `save!` here", "call `save` here"),
        ("the glob is `src/**`, always", "the glob is `src/`, always"),
    ],
)
def test_other_numbers_identifiers_names_and_negations_are_never_the_same(one: str, other: str) -> None:
    assert wording(one).key != wording(other).key
    assert wording(one).marks != wording(other).marks


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The user's name is Bob.", "The user is called Bob."),
        ("Staging runs on port 5433.", "Staging is reachable at port 5433"),
        ("User prefers dark mode.", "The user wants a dark theme"),
    ],
)
def test_other_words_may_say_the_same(one: str, other: str) -> None:
    assert wording(one).key != wording(other).key
    assert wording(one).marks == wording(other).marks


@given(TEXTS, TEXTS)
def test_any_text_has_a_wording_and_equal_words_have_equal_marks_inside_a_sentence(one: str, other: str) -> None:
    assert wording(one) == wording(one)
    assert wording(f"{one}\n{other}").length == wording(one).length + wording(other).length


@given(PLAIN_WORDS, st.integers(0, 10**9), st.data())
def test_a_number_anywhere_makes_a_difference(words: list[str], number: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(words)))
    changed = wording(" ".join([*words[:place], str(number), *words[place:]]))
    assert changed.marks != wording(" ".join(words)).marks
    assert changed.marks != wording(" ".join([*words[:place], str(number + 1), *words[place:]])).marks
