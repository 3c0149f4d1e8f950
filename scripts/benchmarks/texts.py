"""Texts for the benchmarks, the same in every run."""

from __future__ import annotations

import random
from itertools import accumulate, cycle, product

from recall_corpus import texts as notes

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
    """`count` different turns of two texts of 1,000 characters, as (question, answer)."""
    return [(text(f"{label} question {number}"), text(f"{label} answer {number}")) for number in range(count)]


def prose(label: str, count: int, answer_chars: tuple[int, ...], question_chars: int = 150) -> list[tuple[str, str]]:
    """`count` different turns of English sentences. The lengths of the answers repeat in the given order."""
    chance = random.Random(label)
    pool = notes(100, chance)
    lengths = cycle(answer_chars)

    def side(start: str, chars: int) -> str:
        length = round(chars * chance.uniform(0.6, 1.4))
        parts = [start]
        while sum(map(len, parts)) < length:
            parts.append(chance.choice(pool))
        return " ".join(parts)[:length]

    return [
        (side(f"{label}, question {number}:", question_chars), side(f"{label}, answer {number}:", next(lengths)))
        for number in range(count)
    ]
