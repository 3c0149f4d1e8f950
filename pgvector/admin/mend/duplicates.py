"""Duplicates of a memory: rows are compared in batches, theme by theme, and merged in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from sys import intern
from typing import NamedTuple

from ...model import now
from ...store import duplicates, pruning
from ...store.connection.database import Connection
from ...store.duplicates import Kind, Pair
from ...store.pruning import Prunable, Pruning
from ...text.sanitize import safe_line
from ...text.wording import wording
from .batches import Task
from .grouping import Group, Row, of_other_words, of_same_words

NAME_CHARS_MAX = 24
NEAR_S_MAX = 30.0
PART_ROWS = 64


class Found(NamedTuple):
    """A group of rows of a theme that say the same."""

    theme: str
    group: Group


class Search:
    """Looks for groups in themes, each with its number of rows. `found` has them once its tasks are done.

    Of turns, an answer stands for itself and its question, and only the same words are a group.
    """

    def __init__(self, kind: Kind, similarity: float) -> None:
        self._kind, self._similarity = kind, similarity
        self.found: list[Found] = []
        # Of each answer: its id and that of its question.
        self._ids: dict[int, Sequence[int]] = {}

    def tasks(self, themes: Sequence[tuple[str, int]]) -> Iterator[Task]:
        """A task for each theme, which adds its groups to `found`."""
        for theme, rows in themes:
            scan = _Scan(self._kind, theme, rows, self._similarity)
            yield Task(f"compare {safe_line(theme, NAME_CHARS_MAX)}", rows, scan.batch)
            self.found += [Found(theme, group) for group in scan.groups()]
            self._ids |= scan.ids

    def merging(self, groups: Sequence[Found]) -> Iterator[Task]:
        """The tasks that merge some of the groups."""
        if self._kind == "entries":
            waiting = [part for each in reversed(groups) for part in _parts(each)]
            total = sum(len(each.group.merge) for each in waiting)
            yield Task("merge entries", total, lambda connection, rows: _merge(connection, waiting, rows))
            return
        for theme in dict.fromkeys(each.theme for each in groups):
            copies = [part.group for each in reversed(groups) if each.theme == theme for part in _parts(each)]
            total = sum(len(self._turns(group)) for group in copies)
            deleting = partial(self._delete, theme, copies)
            yield Task(f"delete turns of {safe_line(theme, NAME_CHARS_MAX)}", total, deleting)

    def _delete(self, theme: str, waiting: list[Group], connection: Connection, rows: int) -> int:
        """Delete about so many turns of the groups that wait, the last group first; returns how many, 0 at the end.

        Those of a group stay whose kept answer was withdrawn or deleted since they were compared.
        """
        deleted = 0
        while waiting and not deleted:
            chosen: list[Group] = []
            while waiting and sum(map(len, map(self._turns, chosen))) < rows:
                chosen.append(waiting.pop())
            kept = duplicates.kept_turns(connection, theme, [group.keep for group in chosen])
            ids = [number for group in chosen if group.keep in kept for number in self._turns(group)]
            deleted = Pruning("turns", theme, Prunable(ids=ids)).batch(connection, len(ids)) if ids else 0
        return deleted

    def _turns(self, group: Group) -> list[int]:
        return [number for answer in group.merge for number in self._ids[answer]]


class _Scan:
    """The comparison of the rows of one theme, about `total`, in the order of their ids."""

    def __init__(self, kind: Kind, theme: str, total: int, similarity: float) -> None:
        self._kind, self._theme, self._total, self._similarity = kind, theme, total, similarity
        self._after = -(1 << 63)
        self._rows: list[Row] = []
        self._pairs: dict[Pair, float] = {}
        self.ids: dict[int, Sequence[int]] = {}

    def batch(self, connection: Connection, limit: int) -> int:
        """Compare up to so many rows; returns how many."""
        read = duplicates.read(connection, self._kind, self._theme, self._after, limit)
        for row in read:
            self._rows.append(Row(row.id, intern(row.scope), wording(row.text), row.fixed, row.at))
            if self._kind == "turns":
                self.ids[row.id] = row.ids
        if embedded := [row.id for row in read if row.embedded]:
            self._pairs |= duplicates.near(
                connection, self._theme, embedded, self._similarity, rows=self._total, within_s=NEAR_S_MAX
            )
        if read:
            self._after = read[-1].id
        return len(read)

    def groups(self) -> list[Group]:
        """The groups of the same words, and those of other words among the rows that are left."""
        same = of_same_words(self._rows)
        merged = {number for group in same for number in group.merge}
        return same + of_other_words([row for row in self._rows if row.id not in merged], self._pairs)


def sizes(connection: Connection, kind: Kind, themes: Sequence[str]) -> list[tuple[str, int]]:
    """These themes, each with its number of entries or turns; those without any are left out."""
    counted = pruning.sizes(connection, themes)
    found = [(theme, entries if kind == "entries" else turns) for theme, entries, turns in counted]
    return [(theme, rows) for theme, rows in found if rows]


def _parts(each: Found) -> Iterator[Found]:
    """The group in parts that one transaction can merge."""
    merge = each.group.merge
    for start in range(0, len(merge), PART_ROWS):
        yield each._replace(group=each.group._replace(merge=merge[start : start + PART_ROWS]))


def _merge(connection: Connection, waiting: list[Found], rows: int) -> int:
    """Merge about so many rows of the groups that wait, the last group first; returns how many, 0 at the end."""
    tried = merged = 0
    while waiting and (tried < rows or not merged):
        theme, group = waiting.pop()
        merged += duplicates.merge(connection, theme, group.keep, group.merge, alike=_alike, at=now())
        tried += len(group.merge)
    return merged


def _alike(kept: str, other: str) -> bool:
    """Whether the texts have the same words, or the same marks."""
    one, two = wording(kept), wording(other)
    return one.key == two.key or one.marks == two.marks
