"""Selection: the best rows that a request asks for, each text once. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ..model import RecallRequest
from ..store.retrieval import Key, Row
from ..text.cleaning import compatible

FETCHED_MIN = 20

# A sign beyond ASCII; `\W` alone takes three times as long to find the few in a text.
_SIGN = re.compile(r"[^\x00-\x7f](?<!\w)")
# For each byte of UTF-8: ASCII letters in lower case, a space for an ASCII sign, other bytes as they are.
_PLAIN = bytes(
    code if code >= 128 else ord(chr(code).lower()) if re.match(r"\w", chr(code)) else ord(" ") for code in range(256)
)


def select(
    fetch: Callable[[Sequence[Key]], Mapping[Key, Row]], request: RecallRequest, keys: Sequence[Key]
) -> dict[Key, tuple[Row, int]]:
    """Up to `request.limit` rows of the request's scope in the order of `keys`, each with the number of fetched rows
    that have its text: they count as one.

    `keys` are sorted, best first. `fetch` returns those of the rows that still exist; it is asked for few at a time.
    A row can lie outside the scope because it is a neighbour of one inside.
    """
    best: dict[Key, tuple[Row, int]] = {}
    first_with: dict[str, Key] = {}
    step = max(FETCHED_MIN, 2 * request.limit)
    for start in range(0, len(keys), step):
        rows = fetch(keys[start : start + step])
        for key in keys[start : start + step]:
            row = rows.get(key)
            if row is None or not request.scope.holds(row.at, row.session_id, row.role):
                continue
            text = comparable(row.content)
            if text in first_with:
                first, said = best[first_with[text]]
                best[first_with[text]] = first, said + 1
            elif len(best) < request.limit:
                best[key] = row, 1
                first_with[text] = key
        if len(best) >= request.limit:
            break
    return best


def comparable(text: str) -> str:
    """The words of a text without differences in case, width, spaces and punctuation; a text without words as it is."""
    folded = text if text.isascii() else _SIGN.sub(" ", compatible(text).casefold())
    return " ".join(folded.encode().translate(_PLAIN).decode().split()) or text
