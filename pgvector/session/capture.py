"""Judges which turns are worth storing, and which questions are worth a recall."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

from ..hosts.transcript import text_of
from ..text.cleaning import compatible, without_recalled

_PHRASE_CHARS_MAX = 24
_PLAIN_CHARS_MAX = 60
_COMMAND = re.compile(r"/[A-Za-z][\w-]*")


def width(text: str) -> int:
    """The width of a text in characters: an East Asian wide one counts two, one without width none."""
    if text.isascii():
        return len(text)
    seen = (character for character in text if unicodedata.category(character) not in ("Mn", "Me", "Cf"))
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in seen)


def kept(user: Any, assistant: Any, *, min_chars: int) -> tuple[str, str]:
    """The sides of a turn that are worth storing, without recalled memories; the others are empty.

    A message that only acknowledges is dropped, and the whole turn when the rest is narrower than `min_chars`.
    """
    user, assistant = (without_recalled(text_of(side)).strip() for side in (user, assistant))
    if _made_of(_ONLY_ACKNOWLEDGES, user):
        user = ""
    # Enough is measured to decide; long texts are not walked to their end.
    total = width(user[: 8 * min_chars]) + width(assistant[: 8 * min_chars])
    return (user, assistant) if total >= min_chars else ("", "")


def small_talk(query: str) -> bool:
    """Whether nothing is recalled for this message: empty, a greeting, an acknowledgement, or a bare `/command`."""
    stripped = query.strip()
    return _COMMAND.fullmatch(stripped) is not None or _made_of(_SMALL_TALK, stripped)


def _made_of(phrases: frozenset[str], text: str) -> bool:
    """Whether the text is a sequence of these phrases, the longest matched first; true without letters."""
    rest = _plain(text) if len(text) <= 4 * _PLAIN_CHARS_MAX else text
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
    return character >= "\u2e80" or "\u0e00" <= character <= "\u0e7f"


def _plain(text: str) -> str:
    """The text case-folded, with one space in place of all but letters, their marks and digits."""
    folded = compatible(text).casefold()
    kept = (c if unicodedata.category(c)[0] in "LN" or _is_letter_mark(c) else " " for c in folded)
    return " ".join("".join(kept).split())


def _is_letter_mark(character: str) -> bool:
    # Variation selectors and the keycap belong to emoji, all other marks to letters.
    return unicodedata.category(character)[0] == "M" and not "\ufe00" <= character <= "\ufe0f" and character != "\u20e3"


def _phrases(name: str) -> frozenset[str]:
    """The phrases of a text file beside this module, in the form of `_plain`. A line is `Language: phrase|phrase`."""
    lines = Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(phrase for line in lines for phrase in line.partition(": ")[2].split("|"))


# Phrases without information: a message made of acknowledgements is not stored, and none of these recalls anything.
_ONLY_ACKNOWLEDGES = _phrases("acknowledgements")
_SMALL_TALK = _ONLY_ACKNOWLEDGES | _phrases("greetings")
