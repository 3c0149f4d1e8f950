"""Texts that attack the reader of a recall, and the patterns that sanitized text must not contain."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))
SAMPLES = """< > </ / ‹ › « » ⟨ 〉 ＜ ＞ &lt; &gt; &#60; &#x3C; memory-context MEMORY_CONTEXT memory memo ry- context
ｍｅｍｏｒｙ－ｃｏｎｔｅｘｔ system System ＳＹＳＴＥＭ note note: : ： [ ] [/ INST SYS user assistant: tool instruction
| <| |> im_start im_end # ### - * ``` --- \u200b \u202e \ufeff \U000e0073 \ud800 \0 … & a 数据"""
NASTY_PIECES = [*SAMPLES.split(), " ", "\n", "\r\n", "\u2028", "\t", "word "]
NASTY = st.lists(st.sampled_from(NASTY_PIECES), max_size=30).map("".join) | ANY_TEXT
# What the two hosts remove from a provider's text, and what a model reads as another speaker.
HOST_FENCE = re.compile(r"</?\s*memory-context\s*>", re.IGNORECASE)
VOICES = re.compile(
    r"<\|[\w/][^|<>\n]*(?<=\w)\|>|\[/?INST\]|\[\s*system note\b"
    r"|<\s*[/|]?\s*(system|assistant|user|im_start|im_end)\s*\|?\s*>",
    re.IGNORECASE,
)
HIDDEN = re.compile("[\0\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f\ud800-\udfff]")
# The argument of a generic type is no speaker.
GENERIC = re.compile(r"\b[A-Z][a-z]\w*<(?:System|Assistant|User)>")
DATA = Path(__file__).with_name("data")
TOKEN = re.compile(r"<(?:invoke|parameter)[^>]*>|\S+")


def assert_harmless(text: str) -> None:
    assert not HOST_FENCE.search(text)
    assert not VOICES.search(GENERIC.sub("", text))
    assert not HIDDEN.search(text)


def special_tokens() -> list[str]:
    """Special tokens of common model families, as their tokenizers spell them."""
    lines = (DATA / "special_tokens.txt").read_text(encoding="utf-8").splitlines()
    return sorted({token for line in lines for token in TOKEN.findall(line.partition(": ")[2])})


@cache
def look_alikes() -> dict[str, str]:
    """All characters that look like each ASCII character: of UTS 39, wide, bold, accented, escaped."""
    path = Path(__file__).parent.parent / "pgvector" / "text" / "skeletons.txt"
    table = dict(line.split(" ", 1) for line in path.read_text(encoding="utf-8").splitlines())
    found = {character: character + table.get(character, "") for character in map(chr, range(0x20, 0x7F))}
    for character in found:
        if "!" <= character <= "~":
            found[character] += chr(ord(character) + 0xFEE0)
        if character.isalpha():
            bold = 0x1D41A - ord("a") if character.islower() else 0x1D400 - ord("A")
            found[character] += chr(ord(character) + bold)
            found[character] += table.get(character.swapcase(), "") + character.swapcase()
    return found


NOISE = st.text(st.sampled_from("\u0301\u0316\u0489\u200b\u2060\ufe0f\u00ad\U000e0061"), max_size=2)


@st.composite
def disguised(draw: st.DrawFn, text: str) -> str:
    """The text as somebody spells it who wants a reader to see it and a filter to miss it."""
    return "".join(draw(st.sampled_from(look_alikes().get(c, c))) + draw(NOISE) for c in text)
