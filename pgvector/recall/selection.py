"""Selection: the best rows that a request asks for, each text once. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..model import Hit, RecallRequest
from ..store.retrieval import Key
from ..text.cleaning import compatible

FETCHED_MIN = 20

_WORDS = re.compile(r"\w+")
_ASCII_SIGNS = str.maketrans({sign: " " for sign in map(chr, range(128)) if not _WORDS.match(sign)})


def select(
    fetch: Callable[[Sequence[Key]], Mapping[Key, Hit]], request: RecallRequest, keys: Sequence[Key]
) -> dict[Key, Hit]:
    """Up to `request.limit` rows of the request's scope in the order of `keys`; rows with the same text count as one.

    `keys` are sorted, best first. `fetch` returns those of the rows that still exist; it is asked for few at a time.
    A row can lie outside the scope because it is a neighbour of one inside.
    """
    best: dict[Key, Hit] = {}
    first_with: dict[str, Key] = {}
    step = max(FETCHED_MIN, 2 * request.limit)
    for start in range(0, len(keys), step):
        rows = fetch(keys[start : start + step])
        for key in keys[start : start + step]:
            hit = rows.get(key)
            if hit is None or not request.scope.holds(hit):
                continue
            text = comparable(hit.content)
            if text in first_with:
                first = first_with[text]
                best[first] = replace(best[first], said=best[first].said + 1)
            elif len(best) < request.limit:
                best[key] = hit
                first_with[text] = key
        if len(best) >= request.limit:
            break
    return best


def comparable(text: str) -> str:
    """The words of a text without differences in case, width, spaces and punctuation; a text without words as it is."""
    if text.isascii():
        words = text.casefold().translate(_ASCII_SIGNS).split()
    else:
        words = _WORDS.findall(compatible(text).casefold())
    return " ".join(words) or text
