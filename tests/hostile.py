"""Texts that attack the reader of a recall, and the patterns that sanitized text must not contain."""

from __future__ import annotations

import re

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


def assert_harmless(text: str) -> None:
    assert not HOST_FENCE.search(text)
    assert not VOICES.search(text)
    assert not HIDDEN.search(text)
