"""The plan of a relief: what may leave a memory file that is nearly full, and what a person may shorten. Pure.

Lines in fact notation leave first. Then the entries that are long and were not changed for long: the most characters
times days. No more leaves than is needed, and what nobody may take away stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations

from ..model import FILES, Target
from .abbreviations import abbreviated
from .entries import DELIMITER

COMPARED_MAX, COMPARED_CHARS_MAX = 200, 2000
ALIKE = 0.8
# An entry of more than half of the cap is a text without delimiters: without it, the file would be nearly empty.
WHOLE_PCT_MAX = 50
TOO_LONG = "it is more than half of the file's cap: divide it by lines with § only, so that parts of it can leave"
_NO_LETTERS = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of an entry of a file.

    `stays` is why it must not leave the file, empty when it may. `facts` are its lines in fact notation that may become
    facts, and `rest` is the entry without them.
    """

    changed_at: datetime
    stays: str = ""
    facts: tuple[str, ...] = ()
    rest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """An entry that leaves the file: whole, to the entries of the database, or its lines that are `facts`."""

    entry: str
    changed_at: datetime
    facts: tuple[str, ...] = ()
    rest: str = ""

    @property
    def freed(self) -> int:
        """The characters that the file gets shorter."""
        return len(self.entry) - len(self.rest) + (0 if self.rest else len(DELIMITER))


@dataclass(frozen=True, slots=True)
class Proposal:
    """What only a person may do: `entry` nearly says what `other` says, or may become `other`, which is `shorter`."""

    entry: str
    other: str
    shorter: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What becomes of a file. `entries` are those before, `after` those that it is to hold.

    `repeated` entries stand in the file more than once. `staying` are entries that would have left, with the reason why
    they do not. `alike` and `shorter` are proposals.
    """

    target: Target
    chars_max: int
    above_pct: int
    to_pct: int
    entries: tuple[str, ...]
    after: tuple[str, ...]
    repeated: tuple[str, ...]
    moves: tuple[Move, ...]
    staying: Mapping[str, str]
    alike: tuple[Proposal, ...]
    shorter: tuple[Proposal, ...]

    @property
    def chars(self) -> int:
        """The characters before, as the host counts them."""
        return length(self.entries)

    @property
    def chars_after(self) -> int:
        """The characters afterwards."""
        return length(self.after)

    @property
    def file(self) -> str:
        """The name of the file."""
        return FILES[self.target]

    def pct(self, chars: int) -> int:
        """The share of the cap that these characters take, in whole percent, rounded up."""
        return -(-chars * 100 // self.chars_max)

    @property
    def is_full(self) -> bool:
        """Whether the file passes the share of its cap above which it is relieved."""
        return self.chars * 100 > self.above_pct * self.chars_max

    @property
    def changes(self) -> bool:
        """Whether the file is to change."""
        return self.after != self.entries


def length(entries: Sequence[str]) -> int:
    """The characters of a file with these entries."""
    return len(DELIMITER.join(entries))


def plan(
    target: Target,
    entries: Sequence[str],
    standing: Callable[[str], Standing],
    *,
    chars_max: int,
    above_pct: int,
    to_pct: int,
    now: datetime,
) -> Plan:
    """The plan for a file with these entries, of which `standing` tells what is known."""
    distinct = tuple(dict.fromkeys(entries))
    repeated = tuple(entry for entry in distinct if entries.count(entry) > 1)
    known = {entry: standing(entry) for entry in distinct}
    full = length(entries) * 100 > above_pct * chars_max
    room = to_pct * chars_max // 100
    long = {entry for entry in distinct if len(entry) * 100 > WHOLE_PCT_MAX * chars_max and not known[entry].facts}
    movable = [entry for entry in distinct if not known[entry].stays and entry not in long]
    moves = _chosen(_ordered(movable, known, now), length(distinct) - room) if full else []
    rest = {move.entry: move.rest for move in moves}
    after = tuple(filter(None, (rest.get(entry, entry) for entry in distinct)))
    left = [entry for entry in distinct if entry in after] if full else []
    return Plan(
        target=target, chars_max=chars_max, above_pct=above_pct, to_pct=to_pct, entries=tuple(entries), after=after,
        repeated=repeated, moves=tuple(moves),
        staying={entry: known[entry].stays or TOO_LONG for entry in left if known[entry].stays or entry in long},
        alike=_alike(distinct if full else ()), shorter=_shorter(left),
    )  # fmt: skip


def _ordered(entries: Sequence[str], known: Mapping[str, Standing], now: datetime) -> list[Move]:
    """The moves of these entries, the best first."""

    def weight(move: Move) -> float:
        return len(move.entry) * (1 + max(0.0, (now - move.changed_at).total_seconds()) / 86_400)

    facts = [
        Move(entry=entry, changed_at=known[entry].changed_at, facts=known[entry].facts, rest=known[entry].rest)
        for entry in entries
        if known[entry].facts
    ]
    whole = [Move(entry=entry, changed_at=known[entry].changed_at) for entry in entries if not known[entry].facts]
    return [*facts, *sorted(whole, key=weight, reverse=True)]


def _chosen(moves: Sequence[Move], excess: int) -> list[Move]:
    """The first moves that free `excess` characters, without the entries that the others make needless."""
    chosen: list[Move] = []
    for move in moves:
        if excess <= 0:
            break
        chosen.append(move)
        excess -= move.freed
    for move in reversed(tuple(chosen)):
        if not move.facts and excess + move.freed <= 0:
            chosen.remove(move)
            excess += move.freed
    return chosen


def _alike(entries: Sequence[str]) -> tuple[Proposal, ...]:
    """Entries that say nearly the same as an earlier one, by the groups of three letters that they share."""
    compared = [(entry, _trigrams(entry)) for entry in entries[:COMPARED_MAX] if len(entry) <= COMPARED_CHARS_MAX]
    found = {
        other: Proposal(other, one)
        for (one, first), (other, second) in reversed(tuple(combinations(compared, 2)))
        if len(first & second) >= ALIKE * len(first | second) > 0
    }
    return tuple(found[entry] for entry, _ in compared if entry in found)


def _trigrams(text: str) -> frozenset[str]:
    letters = f" {_NO_LETTERS.sub(' ', text.casefold()).strip()} "
    return frozenset(letters[place : place + 3] for place in range(len(letters) - 2))


def _shorter(entries: Sequence[str]) -> tuple[Proposal, ...]:
    """Entries with their words abbreviated, those that become shortest first."""
    found = [
        Proposal(entry, text, len(entry) - len(text)) for entry in entries if (text := abbreviated(entry)) != entry
    ]
    return tuple(sorted(found, key=lambda proposal: proposal.shorter, reverse=True))
