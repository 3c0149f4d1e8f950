"""Rows that belong together in an answer: floods of near-equal rows, and newer and older statements. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ..store.retrieval import Key, Row
from ..text.alike import NEAR_EQUAL, concerns, masked, near_equal, says_change, shape, supersedes, variant
from ..text.phrases import made_of, phrases

# More near-equal rows than this are a flood: so many of them are shown, and after the first one its variants.
FLOOD_MIN, FLOOD_SHOWN, VARIANTS_MAX = 5, 3, 4
# Of the score of an older row: a newer one below it does not take its place only because it has a word of it.
NEWER_SHARE = 0.6
_ACKNOWLEDGEMENT_CHARS_MAX = 80


@dataclass(frozen=True, slots=True)
class Found:
    """A row that becomes a hit. `said` rows have its text, `alike` more are near-equal to it and left out.

    `newer` is the row that supersedes it, `side` the other side of its turn, if that was found, too.
    """

    key: Key
    row: Row
    said: int = 1
    alike: int = 0
    newer: Row | None = None
    side: tuple[Key, Row] | None = None


@dataclass(slots=True)
class Families:
    """The near-equal rows among those that were added, by their folded texts."""

    _members: list[tuple[frozenset[str], list[Key]]] = field(default_factory=list)
    _shapes: dict[Key, frozenset[str]] = field(default_factory=dict)

    @property
    def flooded(self) -> bool:
        """Whether one of the families is a flood."""
        return any(len(members) > FLOOD_MIN for _, members in self._members)

    def add(self, key: Key, folded: str) -> None:
        """Add a row."""
        words = self._shapes[key] = shape(folded)
        shortest, longest = NEAR_EQUAL * len(words), len(words) / NEAR_EQUAL
        for usual, members in self._members:
            if shortest <= len(usual) <= longest and near_equal(words, usual):
                members.append(key)
                return
        self._members.append((words, [key]))

    def without_floods(self, found: Sequence[Found]) -> list[Found]:
        """The rows with FLOOD_SHOWN of each flood, the first of which counts the others and is followed by variants."""
        rest = list(found)
        for usual, members in self._members:
            if len(members) <= FLOOD_MIN:
                continue
            left_out = set(members[FLOOD_SHOWN:])
            rest = [one for one in rest if one.key not in left_out]
            first = next(place for place, one in enumerate(rest) if one.key == members[0])
            kept = set(members)
            variants = [
                one for one in rest[first + 1 :] if one.key not in kept and variant(self._shapes[one.key], usual)
            ][:VARIANTS_MAX]
            moved = {one.key for one in variants}
            head = replace(rest[first], alike=len(left_out))
            rest = [*rest[:first], head, *variants, *(one for one in rest[first + 1 :] if one.key not in moved)]
        return rest


def newest_first(found: Sequence[Found], scores: Mapping[Key, float]) -> list[Found]:
    """The rows in their order, but each one that supersedes others stands before them, and these right behind it.

    A row that says that something has changed also takes its place before an older one with a word in common, if its
    score is not much lower.
    """
    order, changing = list(found), [one for one in found if says_change(one.row.content)]
    superseded = {
        old.key: new
        for new, old in sorted(_pairs(found, changing), key=lambda pair: pair[0].row.at)
        if supersedes(new.row.content, old.row.content)
    }
    for new in changing:
        at = next(place for place, one in enumerate(order) if one.key == new.key)
        for place, old in enumerate(order[:at]):
            close = scores[new.key] >= NEWER_SHARE * scores[old.key]
            if close and old.row.at < new.row.at and concerns(new.row.content, old.row.content):
                order.insert(place, order.pop(at))
                break
    return _together(order, superseded) if superseded else order


def _pairs(found: Sequence[Found], changing: Sequence[Found]) -> Iterator[tuple[Found, Found]]:
    """The newer and the older of two rows of which one may supersede the other."""
    alike: dict[str, list[Found]] = {}
    for one in found:
        for sentence in masked(one.row.content):
            alike.setdefault(sentence, []).append(one)
    # More of them are a series of reports.
    series = [rows for rows in alike.values() if len(rows) <= FLOOD_MIN]
    for news, olds in [(changing, found), *((rows, rows) for rows in series)]:
        yield from ((new, old) for new in news for old in olds if old.row.at < new.row.at)


def _together(found: Sequence[Found], superseded: Mapping[Key, Found]) -> list[Found]:
    """The rows, each superseded one marked and behind the one that supersedes it, at the best place of them all."""
    behind: dict[Key, list[Found]] = {}
    for one in sorted(found, key=lambda one: one.row.at, reverse=True):
        if one.key in superseded:
            behind.setdefault(superseded[one.key].key, []).append(one)
    by_key = {one.key: one for one in found}
    order: dict[Key, Found] = {}

    def put(one: Found) -> None:
        new = superseded.get(one.key)
        order[one.key] = replace(one, newer=new.row) if new else one
        for old in behind.get(one.key, ()):
            put(old)

    for one in found:
        newest = one
        while newest.key in superseded:
            newest = by_key[superseded[newest.key].key]
        if newest.key not in order:
            put(newest)
    return list(order.values())


@lru_cache(maxsize=1024)
def acknowledges(text: str) -> bool:
    """Whether a text only says that something was heard: "Noted, I will keep that in mind."""
    return len(text) <= _ACKNOWLEDGEMENT_CHARS_MAX and made_of(_acknowledgements(), text)


@lru_cache(maxsize=1)
def _acknowledgements() -> frozenset[str]:
    return phrases("acknowledgements") | phrases("receipts")
