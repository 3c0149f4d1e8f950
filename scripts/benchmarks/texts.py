"""What is said in a benchmark: turns of two sides with a thousand characters each, the same ones in every run."""

from __future__ import annotations

import random
from itertools import accumulate, product

SIDE_CHARS = 1000
_SYLLABLES = ["ba", "ke", "lor", "mi", "nu", "pas", "ri", "so", "tan", "ve", "wil", "zu", "dra", "fi", "gol", "hem"]
_WORDS = ["".join(parts) for parts in product(_SYLLABLES, repeat=3)]
# As in a language: the word of rank n occurs in proportion to 1/n.
_WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(_WORDS) + 1)))


def text(seed: str) -> str:
    """A thousand characters of words, always the same ones for a seed."""
    chosen = random.Random(seed).choices(_WORDS, cum_weights=_WEIGHTS, k=SIDE_CHARS // 5)
    return f"{seed} {' '.join(chosen)}"[:SIDE_CHARS]


def turns(label: str, count: int) -> list[tuple[str, str]]:
    """So many turns, question and answer, no two of which are alike."""
    return [(text(f"{label} question {number}"), text(f"{label} answer {number}")) for number in range(count)]
