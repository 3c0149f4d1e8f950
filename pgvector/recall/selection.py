"""Selection: the best rows that a request asks for, each text once. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ..model import RecallRequest, Row
from ..text import normalization

K = TypeVar("K", bound=Hashable)

FETCHED_MIN = 20

_WORDS = re.compile(r"\w+")
_ASCII_SIGNS = str.maketrans({sign: " " for sign in map(chr, range(128)) if not _WORDS.match(sign)})


class Best(NamedTuple):
    """One of the best rows: its score, and how many of the rows that were read have the same text."""

    row: Row
    score: float
    said: int = 1


def select(
    fetch: Callable[[Sequence[K]], Mapping[K, Row]], request: RecallRequest, scores: Mapping[K, float]
) -> dict[K, Best]:
    """Up to `request.limit` rows of the request's scope, best first; rows with the same text count as one.

    `scores` are sorted, best first. `fetch` returns those of the rows that still exist; it is asked for few at a time.
    A row can lie outside the scope because it is a neighbour of one inside.
    """
    best: dict[K, Best] = {}
    first_with: dict[str, K] = {}
    keys, step = list(scores), max(FETCHED_MIN, 2 * request.limit)
    for start in range(0, len(keys), step):
        rows = fetch(keys[start : start + step])
        for key in keys[start : start + step]:
            row = rows.get(key)
            if row is None or not request.scope.holds(row):
                continue
            text = comparable(row.content)
            if text in first_with:
                first = first_with[text]
                best[first] = best[first]._replace(said=best[first].said + 1)
            elif len(best) < request.limit:
                best[key] = Best(row, scores[key])
                first_with[text] = key
        if len(best) >= request.limit:
            break
    return best


def comparable(text: str) -> str:
    """The words of a text without differences in case, width, spaces and punctuation; a text without words as it is."""
    if text.isascii():
        words = text.casefold().translate(_ASCII_SIGNS).split()
    else:
        words = _WORDS.findall(normalization.compatible(text).casefold())
    return " ".join(words) or text
