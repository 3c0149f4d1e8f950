"""Skeletons of text, after UTS 39: each character as the ASCII that it looks like, marks left out. Pure.

`<` and `>` stand for every angle bracket, guillemet and triangle, `[` and `]` for square and lenticular brackets, `{`
and `}` for curly and corner brackets. `skeletons.txt` is written by scripts/skeletons.py.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from html.entities import html5
from pathlib import Path

# A character as another syntax writes it: `&lt;`, `&amp;#60;`, `\u003c`, `\x3c`, `%3c`.
_ESCAPE = re.compile(
    r"&(?:amp;)*+(?:#0*+(?P<decimal>\d{2,7})|#x0*+(?P<hex>[0-9a-f]{2,6})|(?P<name>[a-z]\w{1,30}));?"
    r"|(?:\\u00|\\x|%)(?P<ascii>[2-7][0-9a-f])",
    re.IGNORECASE,
)
_UNIT = re.compile(rf"(?:{_ESCAPE.pattern})|.", re.IGNORECASE | re.DOTALL)


def _looks() -> dict[int, str]:
    lines = Path(__file__).with_name("skeletons.txt").read_text(encoding="utf-8").splitlines()
    return {ord(character): form for form, characters in map(str.split, lines) for character in characters}


class _Forms(dict[int, str]):
    """The form of each code point; those that the table lacks are derived from their decomposition, and kept."""

    def __missing__(self, code: int) -> str:
        form = self[code] = "".join(map(self._part, unicodedata.normalize("NFKD", chr(code))))
        return form

    def _part(self, character: str) -> str:
        category = unicodedata.category(character)
        if category[0] == "M":
            return ""
        return {"Pd": "-", "Zs": " "}.get(category) or self.get(ord(character), character)


_FORMS = _Forms(_looks())


def _like(characters: str) -> str:
    """All that looks like one of these, for a class of characters in a pattern."""
    return re.escape(characters + "".join(chr(code) for code, form in _FORMS.items() if form[0] in characters))


# What can open a tag, by itself or escaped; `]` opens one of a model.
OPENING = _like("<[{") + r"\]&%\\"
COLONS = _like(":") + "\uff1a\ufe55\ufe13&%\\\\"


def skeleton(text: str) -> str:
    """The text as the ASCII that it looks like. That of a text is that of its characters, in their order."""
    if "&" in text or "\\" in text or "%" in text:
        text = _ESCAPE.sub(_unescaped, text)
    return text if text.isascii() else text.translate(_FORMS)


def _unescaped(found: re.Match[str]) -> str:
    if found["name"]:
        # An entity without a semicolon ends where the name of a known one does.
        character = html5.get(f"{found['name']};") or html5.get(f"{found['name'].lower()};")
    else:
        code = int(found["decimal"]) if found["decimal"] else int(found["hex"] or found["ascii"], 16)
        character = chr(code) if code < 0x110000 else None
    return character if character and character.isprintable() else found[0]


def edited(text: str, shape: str, edits: Mapping[int, str]) -> str:
    """The text in which other characters stand for those at these places of `shape`, its skeleton."""
    if shape == text:
        parts = list(text)
        for place, new in edits.items():
            parts[place] = new
        return "".join(parts)
    parts, at = [], 0
    for unit in _UNIT.finditer(text):
        end = at + len(skeleton(unit[0]))
        parts.append(next((edits[place] for place in range(at, end) if place in edits), unit[0]))
        at = end
    return "".join(parts)
