"""What a text says, however it is written, and whether it ends by asking. Pure."""

from __future__ import annotations

import re
import unicodedata

OPENING_CHARS, OPENING_WORDS, ENDING_CHARS = 100, 4, 100

_WORDS = re.compile(r"\w+")
_ASCII_SIGNS = str.maketrans({sign: " " for sign in map(chr, range(128)) if not _WORDS.match(sign)})
# Of Latin, CJK, Arabic and Greek scripts.
_QUESTION_MARKS = "?？؟\u037e"


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


def asks(text: str) -> bool:
    """Whether a text ends in a question, so that what it asks for stands behind it."""
    for sign in reversed(text.rstrip()[-ENDING_CHARS:]):
        if sign in _QUESTION_MARKS:
            return True
        if sign.isalnum():
            return False
    return False


def _words(text: str) -> list[str]:
    if text.isascii():
        return text.casefold().translate(_ASCII_SIGNS).split()
    return _WORDS.findall(unicodedata.normalize("NFKC", text).casefold())
