"""Selection: the best rows that a request asks for, each text and each turn once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType

from ..hosts.provenance import source_of
from ..model import RecallRequest
from ..store.retrieval import Key, Row
from ..text.alike import comparable
from .grouping import Families, Found, acknowledges, newest_first
from .quarantine import is_kept_back

FETCHED_MIN = 20
# Among so many of the best rows newer and older ones are looked for.
NEWEST_AMONG = 20
# So many rows are read at most to find what differs in a flood.
FLOOD_FETCHED_MAX = 200
POINTERS_MAX = 2
# The time between the two sides of a turn, which keeps them in order.
SIDES_APART = timedelta(microseconds=1)
# Of the score of one side of a turn: the other one below it is a hit of its own.
SIDE_SHARE = 0.5


def select(
    fetch: Callable[[Sequence[Key]], Mapping[Key, Row]],
    request: RecallRequest,
    scores: Mapping[Key, float],
    before: Mapping[Key, Key] = MappingProxyType({}),
    *,
    cosines: Mapping[Key, float] = MappingProxyType({}),
    grouped: bool = True,
) -> list[Found]:
    """Up to `request.limit` rows of the request's scope in the order of `scores`, which begins with the best.

    `fetch` returns those of the rows that still exist; it is asked for few at first, and for more when these are not
    enough. A row can lie outside the scope because it is a neighbour of one inside. `before` has the row before a row
    in its session, `cosines` those of the rows that have a vector. Rows with the same text are one; with `grouped`, the
    two sides of a turn, too, unless one is much worse, and `grouping` orders the rows.
    A question whose answer is left out for its source says so. Behind the rows stand up to POINTERS_MAX questions that
    are none of them, of such answers that were found, and entries that are left out.
    """
    chosen, keys = _Chosen(request, scores, before, grouped), list(scores)
    size = max(FETCHED_MIN, 2 * request.limit)
    read, best = 0, list[Found]()
    while read < len(keys):
        chosen.add(fetch, keys[read : read + size])
        read, best = read + size, chosen.best()
        flooded = chosen.families.flooded
        if len(best) >= request.limit and not (flooded and read < FLOOD_FETCHED_MAX):
            break
        # Each time is a round trip, so what differs in a flood is looked for at once.
        size = FLOOD_FETCHED_MAX - read if flooded and read < FLOOD_FETCHED_MAX else 2 * size
    if not grouped:
        return best[: request.limit]
    newest = newest_first(best[:NEWEST_AMONG], scores, request.query, request.limit, cosines) + best[NEWEST_AMONG:]
    return chosen.with_questions(chosen.families.counted(newest[: request.limit]))


@dataclass(slots=True)
class _Chosen:
    """The rows that were read and are in scope, by their folded texts, in their order.

    `_texts` has their folded texts by key, `_turns` that of a row for the row that may be the other side of its turn,
    `_withheld` the rows that are left out for their sources, `_asked` the questions of these, each with the answer that
    was found first, by their folded texts, and `_left_out` the entries of these.
    """

    request: RecallRequest
    scores: Mapping[Key, float]
    before: Mapping[Key, Key]
    grouped: bool
    families: Families = field(default_factory=Families)
    _rows: dict[Key, Row] = field(default_factory=dict)
    _withheld: dict[Key, Row] = field(default_factory=dict)
    _asked: dict[str, Found] = field(default_factory=dict)
    _left_out: list[Found] = field(default_factory=list)
    _read: set[Key] = field(default_factory=set)
    _placed: set[Key] = field(default_factory=set)
    _found: dict[str, Found] = field(default_factory=dict)
    _texts: dict[Key, str] = field(default_factory=dict)
    _turns: dict[Key, str] = field(default_factory=dict)
    _after: dict[Key, Key] = field(init=False)

    def __post_init__(self) -> None:
        self._after = {first: then for then, first in self.before.items()} if self.grouped else {}

    def add(self, fetch: Callable[[Sequence[Key]], Mapping[Key, Row]], keys: Sequence[Key]) -> None:
        """Read these rows, and the questions of those that are left out or only say that something was heard."""
        self._fetch(fetch, keys)
        receipts = [key for key in keys if self._is_receipt(key)] if self.grouped else []
        withheld = [key for key in keys if key in self._withheld] if self.grouped else []
        answers = [key for key in withheld if key in self.before]
        self._left_out += [self._pointer(key, key) for key in withheld if not self._withheld[key].role]
        self._fetch(fetch, [self.before[key] for key in (*receipts, *answers)])
        for key in answers:
            self._note_question(key)
        questions = {key: self._question(key) for key in receipts}
        for key in keys:
            asked = questions.get(key, key)
            if asked not in self._placed:
                self._placed.add(asked)
                self._place(asked, key if asked != key else None)
            elif asked != key and (text := self._texts.get(asked)) is not None:
                self._found[text] = replace(self._found[text], receipt=self._found[text].receipt or key)

    def best(self) -> list[Found]:
        """The rows so far, floods behind others."""
        return self.families.in_order(list(self._found.values()))

    def _fetch(self, fetch: Callable[[Sequence[Key]], Mapping[Key, Row]], keys: Sequence[Key]) -> None:
        if wanted := [key for key in keys if key not in self._read]:
            self._read.update(wanted)
            for key, row in fetch(wanted).items():
                role, metadata = row.role or "", row.metadata or {}
                if not self.request.scope.holds(row.at, row.session_id, row.role):
                    continue
                if self.request.outside != "all" and is_kept_back(role, row.content, metadata, self.request.outside):
                    self._withheld[key] = row
                else:
                    self._rows[key] = row

    def with_questions(self, shown: Sequence[Found]) -> list[Found]:
        """The rows that are shown, those whose answer is left out marked, and the first of the other questions and of
        the entries that are left out."""
        if not self._asked:
            return [*shown, *self._left_out[:POINTERS_MAX]]
        texts = [comparable(one.row.content) for one in shown]
        marked = [
            replace(one, withheld=asked.withheld, receipt=one.receipt or asked.receipt)
            if (asked := self._asked.get(text))
            else one
            for text, one in zip(texts, shown, strict=True)
        ]
        others = [one for text, one in self._asked.items() if text not in texts]
        return marked + [*others, *self._left_out][:POINTERS_MAX]

    def _note_question(self, answer: Key) -> None:
        """Note the question of an answer that is left out. The row before it may be of another turn."""
        row, key = self._withheld[answer], self.before[answer]
        asked = self._rows.get(key)
        if asked is not None and asked.role == "user" and row.at - asked.at <= SIDES_APART:
            self._asked.setdefault(comparable(asked.content), self._pointer(key, answer))

    def _pointer(self, shown: Key, withheld: Key) -> Found:
        """The row that is shown in the place of one that is left out, which itself names only its source."""
        row, left_out = self._rows.get(shown), self._withheld[withheld]
        source = source_of(left_out.role or "", left_out.metadata or {})
        return Found(shown, row or left_out, receipt=withheld, withheld=source, pointer=True)

    def _is_receipt(self, key: Key) -> bool:
        row = self._rows.get(key) if key in self.before else None
        return row is not None and row.role == "assistant" and acknowledges(row.content)

    def _question(self, key: Key) -> Key:
        """The row that a receipt answers; itself where that is not in scope."""
        asked = self._rows.get(self.before[key])
        return self.before[key] if asked and asked.role == "user" else key

    def _is_side(self, key: Key, first: Found) -> bool:
        close = self.scores[key] >= SIDE_SHARE * self.scores[first.key]
        return close and self._rows[key].role != first.row.role

    def _place(self, key: Key, receipt: Key | None) -> None:
        row = self._rows.get(key)
        if row is None:
            return
        text = comparable(row.content)
        if text in self._found:
            self._found[text] = replace(self._found[text], said=self._found[text].said + 1)
        elif (turn := self._turns.get(key)) is not None and self._is_side(key, self._found[turn]):
            self._found[turn] = replace(self._found[turn], side=(key, row))
        else:
            self._found[text] = Found(key, row, receipt=receipt)
            self._texts[key] = text
            if self.grouped:
                self.families.add(key, text)
                other = self.before.get(key) if row.role == "assistant" else self._after.get(key)
                if other is not None:
                    self._turns[other] = text
