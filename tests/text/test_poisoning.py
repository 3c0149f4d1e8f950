"""How many attacks the detectors find, and how many harmless texts they touch; see tests/data/poisoning."""

from __future__ import annotations

import re
from pathlib import Path

from hermes_memory_pgvector.text.suspicion import reasons

DATA = Path(__file__).parents[1] / "data" / "poisoning"
DOCS = Path(__file__).parents[2] / "docs"
LANGUAGES = {"en", "de", "fr", "es", "pt", "it", "ru", "zh"}


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def attacks(name: str) -> list[str]:
    found = [line.partition(" ")[::2] for line in lines(DATA / name)]
    assert len(found) >= 100
    assert {language for language, _ in found} == LANGUAGES
    return [text for _, text in found]


def test_nine_of_ten_attacks_in_eight_languages_are_found() -> None:
    texts = attacks("attacks_first.txt")
    missed = [text for text in texts if not reasons(text)]
    assert len(missed) <= 0.1 * len(texts), missed


def test_docs_tell_how_many_unseen_attacks_are_found() -> None:
    texts = attacks("attacks_held_out.txt")
    found = sum(bool(reasons(text)) for text in texts)
    manual = (DOCS / "untrusted_text.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| {len(texts)} attacks that another author .*\| {found} \|$", manual, re.MULTILINE)
    assert f"[find {found}](untrusted_text.md)" in (DOCS / "security.md").read_text(encoding="utf-8")


def test_at_most_one_in_two_hundred_hard_harmless_texts_is_touched() -> None:
    texts = lines(DATA / "harmless.txt")
    assert len(set(texts)) >= 500
    touched = [text for text in texts if reasons(text)]
    assert len(touched) <= 0.005 * len(texts), touched
