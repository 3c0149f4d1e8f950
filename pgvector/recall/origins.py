"""Origins of rows, each a session or another theme: none of them fills the places before a turn. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..model import Hit, Recall, Scope

# Of the hits of a full answer: an origin with so many may hide the rows of others.
CROWDED_SHARE = 0.75


class Origin(NamedTuple):
    """Another theme, or a session."""

    theme: str = ""
    session_id: str = ""


def origin_of(hit: Hit, others: Collection[str]) -> Origin | None:
    """The origin of a row, where `others` are the themes that are not the reader's own; None for an own entry."""
    if hit.theme in others:
        return Origin(theme=hit.theme)
    return Origin(session_id=hit.session_id) if hit.session_id and not hit.target else None


def crowding(recalls: Iterable[Recall], limit: int, others: Collection[str]) -> Origin | None:
    """The origin of nearly all hits of an answer that has as many as its `limit`, or None."""
    for recall in recalls:
        if len(recall.hits) >= limit:
            [(origin, count)] = Counter(origin_of(hit, others) for hit in recall.hits).most_common(1)
            if origin and count >= CROWDED_SHARE * len(recall.hits):
                return origin
    return None


def without(scope: Scope, origin: Origin) -> Scope:
    """The scope without the rows of an origin. It may have those of `without_session`, when that is another one."""
    if origin.session_id:
        return replace(scope, without_session=origin.session_id, without_since=None)
    return replace(scope, themes=tuple(theme for theme in scope.themes or () if theme != origin.theme))


def shared_out(hits: Iterable[Hit], limit: int, others: Collection[str]) -> list[Hit]:
    """The first `limit` hits, of each origin at most half as long as there are others; the rest stands behind them."""
    share, taken, late = (limit + 1) // 2, list[Hit](), list[Hit]()
    counts = Counter[Origin]()
    for hit in hits:
        origin = origin_of(hit, others)
        if origin and counts[origin] >= share:
            late.append(hit)
            continue
        if origin:
            counts[origin] += 1
        taken.append(hit)
        if len(taken) == limit:
            break
    return [*taken, *late][:limit]


def added(hits: Sequence[Hit], more: Iterable[Hit], scope: Scope) -> list[Hit]:
    """The hits, and those of `more` in a scope that are none of them."""
    known = {(hit.theme, hit.target, hit.id) for hit in hits}
    fresh = (hit for hit in more if scope.holds(hit.at, hit.session_id, hit.role))
    return [*hits, *(hit for hit in fresh if (hit.theme, hit.target, hit.id) not in known)]
