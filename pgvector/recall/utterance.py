"""What a text says, however it is written, and how much of it asks. Pure."""

from __future__ import annotations

import re

from ..text import normalization

OPENING_CHARS, OPENING_WORDS = 50, 4
# Of a longer text or sentence no more is looked at, so that no text takes long, whoever wrote it.
WEIGHED_CHARS, ENDING_CHARS = 10_000, 100

_WORDS = re.compile(r"\w+")
_ASCII_SIGNS = str.maketrans({sign: " " for sign in map(chr, range(128)) if not _WORDS.match(sign)})
# Of Latin, CJK, Arabic and Greek scripts.
_QUESTION_MARKS = "?？؟\u037e"
_ASKS = re.compile(rf"[{_QUESTION_MARKS}]\W*\Z")
_BETWEEN_SENTENCES = re.compile(rf"(?<=[.!…。！{_QUESTION_MARKS}])\s+|\n+|(?<=[。！？])")


def said(text: str) -> str:
    """What a text says, whatever its case, width, spaces and signs."""
    return " ".join(_words(text)) or text


def opening(text: str) -> str:
    """The first words of what a text says, by which most texts differ."""
    words = _words(text[:OPENING_CHARS])
    # The last of them may have been cut.
    if len(words) <= OPENING_WORDS:
        words = _words(text)
    return " ".join(words[:OPENING_WORDS])


def asking(text: str) -> float:
    """The share of a text, or of its beginning when it is long, that stands in questions."""
    weighed = text[:WEIGHED_CHARS]
    if not any(mark in weighed for mark in _QUESTION_MARKS):
        return 0.0
    sentences = _BETWEEN_SENTENCES.split(weighed)
    asked = sum(len(sentence) for sentence in sentences if _ASKS.search(sentence[-ENDING_CHARS:]))
    return asked / sum(map(len, sentences))


def _words(text: str) -> list[str]:
    if text.isascii():
        return text.casefold().translate(_ASCII_SIGNS).split()
    return _WORDS.findall(normalization.compatible(text).casefold())
