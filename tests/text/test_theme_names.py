"""Names of themes that are as long or as odd as a client can make them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.text import theme_names
from hermes_memory_pgvector.text.theme_names import GIVEN_CHARS_MAX, THEME_CHARS_MAX, normalise


@given(st.text(max_size=300))
def test_a_name_has_one_normal_form(name: str) -> None:
    theme = normalise(name)
    assert 0 < len(theme) <= THEME_CHARS_MAX
    assert normalise(theme) == theme


@pytest.mark.parametrize("sign", ["\ufdfa", "\u0344", "x", " ", "\ud800"])
def test_a_long_name_costs_no_more_than_a_short_one(sign: str) -> None:
    def took(name: str) -> float:
        started = time.thread_time()
        assert 0 < len(normalise(name)) <= THEME_CHARS_MAX
        return time.thread_time() - started

    longest_allowed = max(took(sign * GIVEN_CHARS_MAX) for _ in range(5))
    assert min(took(sign * 50 * GIVEN_CHARS_MAX) for _ in range(5)) < 5 * longest_allowed + 0.05


@pytest.mark.parametrize("sign", ["\ufdfa", "\u0344", "x", "\ud800", "👩‍👩‍👧"])
def test_a_name_of_any_length_is_normalised_by_its_beginning(sign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    label = theme_names.label
    monkeypatch.setattr(theme_names, "label", lambda name: label(name) if read.append(len(name)) is None else "")
    found = {normalise(sign * 200_000), normalise(sign * 200_000 + "a"), normalise(sign * GIVEN_CHARS_MAX + "a")}
    assert len(found) == len(read) == 3
    assert max(read) <= GIVEN_CHARS_MAX


def test_two_long_names_are_two_themes() -> None:
    long = "n" * 5 * GIVEN_CHARS_MAX
    assert normalise(f"{long}a") != normalise(f"{long}b")
    assert normalise(long).startswith("nnn")
