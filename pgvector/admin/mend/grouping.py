"""Groups of rows that say the same: which row of each stays, and which are merged into it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from ...text.wording import Wording


class Row(NamedTuple):
    """A row that is compared with those of the same `scope`. One that is `fixed` is never merged into another."""

    id: int
    scope: str
    wording: Wording
    fixed: bool
    at: datetime


class Group(NamedTuple):
    """The ids of rows that are merged into the row `keep`, and of fixed rows that say the same and stay.

    `similarity` is the smallest cosine of a merged row to the kept one; 1 for the same words.
    """

    keep: int
    merge: tuple[int, ...]
    stay: tuple[int, ...]
    reworded: bool
    similarity: float


def of_same_words(rows: Iterable[Row]) -> list[Group]:
    """Groups of the same words: a fixed row stays, else the newest."""
    found: dict[tuple[str, bytes], list[Row]] = {}
    for row in rows:
        if row.wording.length:
            found.setdefault((row.scope, row.wording.key), []).append(row)
    groups = []
    for alike in found.values():
        if len(alike) == 1:
            continue
        keep, *others = sorted(alike, key=_fixed_then_newest, reverse=True)
        groups.append(_group(keep, others, {}, reworded=False))
    return _sorted(groups)


def of_other_words(rows: Iterable[Row], pairs: Mapping[tuple[int, int], float]) -> list[Group]:
    """Groups of other words with the same marks, from pairs of ids with their similarity: the longest row stays.

    Each row of a group is similar to the one that stays, not only to another one of the group.
    """
    order = sorted(rows, key=lambda row: (row.wording.length, *_fixed_then_newest(row)), reverse=True)
    place = {row.id: number for number, row in enumerate(order)}
    near: dict[int, dict[int, float]] = {}
    for (one, other), similarity in pairs.items():
        if one in place and other in place and _comparable(order[place[one]], order[place[other]]):
            first, second = sorted((one, other), key=place.__getitem__)
            near.setdefault(first, {})[second] = similarity
    taken: set[int] = set()
    groups = []
    for keep in order:
        if keep.id not in taken and keep.id in near:
            others = [order[place[number]] for number in near[keep.id] if number not in taken]
            groups.append(_group(keep, others, near[keep.id], reworded=True))
            taken.update(groups[-1].merge)
    return _sorted(groups)


def _fixed_then_newest(row: Row) -> tuple[bool, datetime, int]:
    return row.fixed, row.at, row.id


def _comparable(one: Row, other: Row) -> bool:
    return (
        one.scope == other.scope and one.wording.marks == other.wording.marks and one.wording.key != other.wording.key
    )


def _group(keep: Row, others: Sequence[Row], similar: Mapping[int, float], *, reworded: bool) -> Group:
    ids = {fixed: tuple(sorted(row.id for row in others if row.fixed == fixed)) for fixed in (False, True)}
    similarity = min((similar[number] for number in ids[False]), default=1.0) if reworded else 1.0
    return Group(keep.id, ids[False], ids[True], reworded, similarity)


def _sorted(groups: Iterable[Group]) -> list[Group]:
    """The groups in which a row is merged, the most similar first."""
    return sorted((each for each in groups if each.merge), key=lambda each: (-each.similarity, each.keep))
