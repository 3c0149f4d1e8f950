"""Rows that belong together in an answer: floods of near-equal rows, and newer and older statements. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from heapq import nlargest
from itertools import islice
from types import MappingProxyType

from ..model import Hit
from ..store.retrieval import Key, Row
from ..text.alike import (
    COMPARED_CHARS_MAX,
    NEAR_EQUAL,
    asks_for_past,
    figures,
    masked,
    near_equal,
    says_change,
    shape,
    supersedes,
    updates,
    variant,
)
from ..text.phrases import made_of, phrases

# More near-equal rows than this are a flood: so many of them are shown before other rows, with so many variants.
FLOOD_MIN, FLOOD_SHOWN, VARIANTS_MAX = 5, 3, 4
# A newer row among so many of the best takes the place of an older one only for what is asked, if it has so much of
# the score of that. So much of its cosine counts as near: unrelated rows have less, though in a small scope they may be
# the two nearest.
NEWER_AMONG, NEWER_SHARE, NEAR_SHARE = 4, 0.3, 0.45
_ACKNOWLEDGEMENT_CHARS_MAX = 80


@dataclass(frozen=True, slots=True)
class Found:
    """A row that becomes a hit. `said` rows have its text, `alike` more are near-equal to it and left out.

    `newer` is the row that supersedes it, `side` the other side of its turn, if that was found, too. `receipt` is the
    answer that was found for it and is not shown: without content, or left out for its source, which is `withheld`.
    A `pointer` was found by such an answer alone, or is an entry that is left out for its source.
    """

    key: Key
    row: Row
    said: int = 1
    alike: int = 0
    newer: Row | None = None
    side: tuple[Key, Row] | None = None
    receipt: Key | None = None
    withheld: str = ""
    pointer: bool = False


@dataclass(slots=True)
class Families:
    """The near-equal rows among those that were added, by their folded texts."""

    _members: list[tuple[frozenset[str], list[Key]]] = field(default_factory=list)
    _shapes: dict[Key, frozenset[str]] = field(default_factory=dict)

    @property
    def flooded(self) -> bool:
        """Whether one of the families is a flood."""
        return any(len(members) > FLOOD_MIN for _, members in self._members)

    @property
    def members(self) -> list[list[Key]]:
        """The rows of each family, in the order in which they were added."""
        return [members for _, members in self._members]

    def add(self, key: Key, folded: str) -> None:
        """Add a row."""
        words = self._shapes[key] = shape(folded)
        if not words:
            return
        shortest, longest = NEAR_EQUAL * len(words), len(words) / NEAR_EQUAL
        for usual, members in self._members:
            if shortest <= len(usual) <= longest and near_equal(words, usual):
                members.append(key)
                return
        self._members.append((words, [key]))

    def in_order(self, found: Sequence[Found]) -> list[Found]:
        """The rows, of each flood the first FLOOD_SHOWN with its variants behind the first, the others at the end."""
        floods = [(usual, members) for usual, members in self._members if len(members) > FLOOD_MIN]
        alike = {key for _, members in floods for key in members}
        late = {key for _, members in floods for key in members[FLOOD_SHOWN:]}
        order = [one for one in found if one.key not in late]
        for usual, members in floods:
            first = next(place for place, one in enumerate(order) if one.key == members[0]) + 1
            odd = (one for one in order[first:] if one.key not in alike and variant(self._shapes[one.key], usual))
            moved = {one.key: one for one in islice(odd, VARIANTS_MAX)}
            order[first:] = [*moved.values(), *(one for one in order[first:] if one.key not in moved)]
        return [*order, *(one for one in found if one.key in late)]

    def counted(self, hits: Sequence[Found]) -> list[Found]:
        """The hits, the first one of each flood with the number of its rows that are none."""
        if not self.flooded:
            return list(hits)
        shown = {one.key for one in hits}
        left_out = {
            next((key for key in members if key in shown), None): sum(key not in shown for key in members)
            for _, members in self._members
            if len(members) > FLOOD_MIN
        }
        return [replace(one, alike=left_out.get(one.key, 0)) for one in hits]


def newest_first(
    found: Sequence[Found],
    scores: Mapping[Key, float],
    query: str = "",
    limit: int | None = None,
    cosines: Mapping[Key, float] = MappingProxyType({}),
) -> list[Found]:
    """The rows in their order, but each one that supersedes others stands before them, and these right behind it.

    One of the best rows that says that something has changed also takes its place before an older one, if it is about
    what is asked, its score is not much lower and the older one remains among the first `limit` rows. Of the two best
    rows a short newer one needs neither words nor score, if both are also the two nearest by their `cosines`, of which
    its own is not much lower. A row with a figure of the query, which the newer one lacks, is what is asked for.
    """
    asked = figures(query)

    def may_stand_before(new: Found, old: Found) -> bool:
        return old.row.at < new.row.at and not asked & figures(old.row.content) - figures(new.row.content)

    changing = [one for one in found if says_change(one.row.content)]
    superseded = {
        old.key: new
        for new, old in sorted(_pairs(found, changing), key=lambda pair: pair[0].row.at)
        if may_stand_before(new, old) and supersedes(new.row.content, old.row.content)
    }
    order = list(found)
    nearest = nlargest(2, (one.key for one in found if one.key in cosines), key=lambda key: cosines[key])

    def are_near(new: Found, old: Found) -> bool:
        are_nearest = {new.key, old.key} == set(nearest)
        return are_nearest and cosines[new.key] >= NEAR_SHARE * cosines[old.key]

    for at in range(1, 0 if asks_for_past(query) else min(NEWER_AMONG, len(order), limit or NEWER_AMONG)):
        new = order[at]
        for place, old in enumerate(order[:at]):
            near = at == 1 and len(new.row.content) <= COMPARED_CHARS_MAX and are_near(new, old)
            close = (near or scores[new.key] >= NEWER_SHARE * scores[old.key]) and new.row.role != "assistant"
            if close and may_stand_before(new, old) and updates(new.row.content, old.row.content, query, near=near):
                order.insert(place, order.pop(at))
                break
    return _together(order, superseded) if superseded else order


def newest_of_kinds(hits: Sequence[Hit]) -> list[Hit]:
    """Entries and turns, each one that a later row of the other kind supersedes marked and behind that."""
    superseded = {
        place: number
        for number, new in enumerate(hits)
        for place, old in enumerate(hits)
        if bool(old.target) != bool(new.target) and old.at < new.at
        if says_change(new.content) and supersedes(new.content, old.content)
    }
    order = dict.fromkeys(each for place in range(len(hits)) for each in (superseded.get(place, place), place))
    newer = {place: hits[number] for place, number in superseded.items()}
    return [
        replace(hits[place], newer=(newer[place].id, newer[place].at)) if place in newer else hits[place]
        for place in order
    ]


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


def acknowledges(text: str) -> bool:
    """Whether a text only says that something was heard: "Noted, I will keep that in mind."""
    return len(text) <= _ACKNOWLEDGEMENT_CHARS_MAX and _acknowledges(text)


@lru_cache(maxsize=1024)
def _acknowledges(text: str) -> bool:
    return made_of(_acknowledgements(), text)


@lru_cache(maxsize=1)
def _acknowledgements() -> frozenset[str]:
    return phrases("acknowledgements") | phrases("receipts")
