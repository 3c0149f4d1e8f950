"""Turns for the benchmarks: two texts of 1,000 characters each, the same in every run."""

from __future__ import annotations

import random
from itertools import accumulate, product

SIDE_CHARS = 1000
_SYLLABLES = ["ba", "ke", "lor", "mi", "nu", "pas", "ri", "so", "tan", "ve", "wil", "zu", "dra", "fi", "gol", "hem"]
_WORDS = ["".join(parts) for parts in product(_SYLLABLES, repeat=3)]
# Zipf's law: the word of rank n has the frequency 1/n.
_WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(_WORDS) + 1)))


def text(seed: str) -> str:
    """1,000 characters of words; a seed always gives the same text."""
    chosen = random.Random(seed).choices(_WORDS, cum_weights=_WEIGHTS, k=SIDE_CHARS // 5)
    return f"{seed} {' '.join(chosen)}"[:SIDE_CHARS]


def turns(label: str, count: int) -> list[tuple[str, str]]:
    """`count` different turns, as (question, answer)."""
    return [(text(f"{label} question {number}"), text(f"{label} answer {number}")) for number in range(count)]
