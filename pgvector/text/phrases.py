"""Messages that consist of known phrases, such as greetings, in many languages. Pure."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from .cleaning import UNSPACED_FROM, compatible

_PHRASE_CHARS_MAX = 32
_PLAIN_CHARS_MAX = 80


def phrases(name: str) -> frozenset[str]:
    """The phrases of a text file beside this module, in the form of `plain`. A line is `Language: phrase|phrase`."""
    lines = Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(phrase for line in lines for phrase in line.partition(": ")[2].split("|"))


def made_of(phrases: frozenset[str], text: str) -> bool:
    """Whether the text is a sequence of these phrases, the longest matched first; true without letters."""
    rest = plain(text) if len(text) <= 4 * _PLAIN_CHARS_MAX else text
    if len(rest) > _PLAIN_CHARS_MAX:
        return False
    while rest:
        ends = range(min(len(rest), _PHRASE_CHARS_MAX), 0, -1)
        end = next((end for end in ends if rest[:end] in phrases and _ends_word(rest, end)), 0)
        if not end:
            return False
        rest = rest[end:].lstrip()
    return True


def _ends_word(text: str, end: int) -> bool:
    """Whether a word can end here: before a space, at the end of the text, or next to a script without spaces."""
    return text[end : end + 1] in ("", " ") or _unspaced(text[end - 1]) or _unspaced(text[end])


def _unspaced(character: str) -> bool:
    return character >= UNSPACED_FROM or "\u0e00" <= character <= "\u0e7f"


def plain(text: str) -> str:
    """The text case-folded, with one space in place of all but letters, their marks and digits."""
    folded = compatible(text).casefold()
    kept = (c if unicodedata.category(c)[0] in "LN" or _is_letter_mark(c) else " " for c in folded)
    return " ".join("".join(kept).split())


def _is_letter_mark(character: str) -> bool:
    # Variation selectors and the keycap belong to emoji, all other marks to letters.
    return unicodedata.category(character)[0] == "M" and not "\ufe00" <= character <= "\ufe0f" and character != "\u20e3"
