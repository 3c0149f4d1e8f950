#!/usr/bin/env python3
"""Writes pgvector/text/skeletons.txt: the characters that look like ASCII, by what they look like.

    scripts/skeletons.py confusables.txt >pgvector/text/skeletons.txt

`confusables.txt` is that of UTS 39, https://www.unicode.org/Public/security/latest/confusables.txt. Brackets, and Latin
letters with strokes and hooks, are added by their properties. Decompositions and marks are left to the reader.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import defaultdict
from pathlib import Path

_KEPT = re.compile(r"[A-Za-z0-9<>|/_:&-]+|[\[\]{}]|rn|<+|>+")
_LATIN = re.compile(r"\bLATIN (?:(?:SMALL|CAPITAL|LETTER) )*([A-Z])\b|\bSYMBOL LETTER ([A-Z])$")
_SIDES = {"Ps": 0, "Pi": 0, "Pe": 1, "Pf": 1}


def plain(text: str) -> str:
    """The text decomposed and without its marks."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.category(c).startswith("M"))


def confusables(path: Path) -> dict[str, str]:
    rows = (line.split(";") for line in path.read_text("utf-8-sig").splitlines() if line[:1] not in ("", "#"))
    pairs = ((chr(int(row[0], 16)), "".join(chr(int(code, 16)) for code in row[1].split())) for row in rows)
    return {character: plain(target).replace("rn", "m") for character, target in pairs}


def by_property(character: str) -> str:
    """What a bracket or a Latin letter looks like; empty for others."""
    name, category = unicodedata.name(character, ""), unicodedata.category(character)
    if latin := _LATIN.search(name):
        letter = latin[1] or latin[2]
        return letter.lower() if "SMALL LETTER" in name else letter
    if "PARENTHESIS" in name or ("QUOTATION" in name and "ANGLE" not in name):
        return ""
    side = _SIDES.get(category)
    if side is None and category in ("Sm", "So") and not re.search(r"\bOR\b|\bARROW\b", name):
        side = next((i for i, word in enumerate(("LESS-THAN", "GREATER-THAN")) if word in name), None)
        side = next((i for i, word in enumerate(("LEFT-P", "RIGHT-P")) if re.search(rf"{word}.*ANGLE", name)), side)
    if side is None:
        return ""
    if re.search("SQUARE|LENTICULAR|TORTOISE", name):
        return "[]"[side]
    return ("{}" if re.search("CURLY|CORNER", name) else "<>")[side]


def main() -> None:
    looks = confusables(Path(sys.argv[1]))
    looks["\u2581"] = "_"  # Tokenizers write it for a space.
    groups = defaultdict(list)
    for character in map(chr, (*range(0x80, 0xD800), *range(0xE000, 0xE0000))):
        found = by_property(character)
        form = found if found and found in "<>[]{}" else looks.get(character) or found
        if form == "l" and unicodedata.category(character) == "Lu":
            form = "I"
        if form and form.isascii() and _KEPT.fullmatch(form) and form != plain(character):
            groups[form].append(character)
    for form in sorted(groups, key=lambda form: (len(form), form)):
        print(form, "".join(groups[form]))


if __name__ == "__main__":
    main()
