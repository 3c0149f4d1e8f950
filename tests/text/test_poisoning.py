"""How many attacks the detectors find, and how many harmless texts they touch; see tests/data/poisoning."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_memory_pgvector.text.suspicion import reasons

DATA = Path(__file__).parents[1] / "data" / "poisoning"
LANGUAGES = {"en", "de", "fr", "es", "pt", "it", "ru", "zh"}


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("path", sorted(DATA.glob("attacks_*.txt")), ids=lambda path: path.stem)
def test_nine_of_ten_attacks_in_eight_languages_are_found(path: Path) -> None:
    attacks = [line.partition(" ")[::2] for line in lines(path)]
    assert len(attacks) >= 100
    assert {language for language, _ in attacks} == LANGUAGES
    missed = [text for _, text in attacks if not reasons(text)]
    assert len(missed) <= 0.1 * len(attacks), missed


def test_at_most_one_in_two_hundred_hard_harmless_texts_is_touched() -> None:
    texts = lines(DATA / "harmless.txt")
    assert len(set(texts)) >= 500
    touched = [text for text in texts if reasons(text)]
    assert len(touched) <= 0.005 * len(texts), touched
