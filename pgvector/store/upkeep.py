"""Rows without a vector or without words: found and filled in, and the leases for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

from ..errors import PgvectorError
from ..model import Vector
from ..text import tokenizer
from . import pieces
from .connection.database import Connection, Database, half
from .connection.distributed import by_theme, form_of
from .passages import Passage
from .queries import KINDS, QUERIES, Kind, query

WORDS_SAMPLE_ROWS = 2000
# Leases, for work that one process of a fleet does at a time: add vectors, add words, count common words, delete old
# events, delete turns that settings do not keep, fill the second column of vectors.
VECTORS_LEASE, UNWORDED_LEASE, WORDS_LEASE, PRUNE_LEASE = "heal", "unworded", "words", "prune"
RETENTION_LEASE, REEMBED_LEASE = "retention", "reembed"
RELEASE_S_MAX = 0.5


class Lease:
    """The right to work that one process of a fleet does at a time. For one thread.

    It ends `seconds` after it was last claimed, because a killed process does not release it.
    """

    def __init__(self, name: str, seconds: float) -> None:
        self._name, self._seconds = name, seconds
        self._holder = uuid4().hex
        self._until = 0.0

    @property
    def held(self) -> bool:
        """Whether this process has the lease, as far as it knows."""
        return time.monotonic() < self._until

    @property
    def due(self) -> bool:
        """Whether to claim or renew it: less than half of its time is left."""
        return time.monotonic() > self._until - self._seconds / 2

    def claim(self, connection: Connection) -> bool:
        """Take the lease, or renew it when that is due; False while another process has it."""
        if self.due:
            asked_at = time.monotonic()
            holds = claim(connection, self._name, self._holder, self._seconds)
            self._until = asked_at + self._seconds if holds else 0.0
        return self.held

    def release(self, connection: Connection) -> None:
        """Let another process take it."""
        if self._until:
            self._until = 0.0
            release(connection, self._name, self._holder)

    def release_soon(self, database: Database) -> None:
        """Release it if Postgres answers at once; otherwise it expires."""
        if self._until:
            with contextlib.suppress(PgvectorError), database.connection(RELEASE_S_MAX) as connection:
                self.release(connection)


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A stored row that has no vector yet; `worded` is whether it has its words."""

    kind: Kind
    theme: str
    id: int
    passage: Passage
    worded: bool = False


class Lacking(NamedTuple):
    """Whether some rows lack their vectors, and whether some lack their words."""

    vectors: bool
    words: bool


def claim(connection: Connection, name: str, holder: str, seconds: float) -> bool:
    """Take or renew a lease for so many seconds; False while another `holder` has it."""
    lease = {"name": name, "holder": holder, "seconds": seconds}
    return connection.execute(QUERIES["claim_lease"], lease).rowcount == 1


def release(connection: Connection, name: str, holder: str) -> None:
    """Release a lease; nothing happens when another process holds it."""
    connection.execute(QUERIES["release_lease"], {"name": name, "holder": holder})


def lacking(connection: Connection) -> Lacking:
    """What rows lack. Reads two small indexes of each table."""
    row = connection.execute(QUERIES["lacking"]).fetchone() or {}
    return Lacking(**row)


def unembedded(
    connection: Connection, limit: int, skip: Collection[tuple[Kind, int]] = (), *, second: bool = False
) -> list[Unembedded]:
    """Up to `limit` rows without a vector, entries first, then the newest, without the (kind, id) pairs in `skip`.

    With `second`, those without one in the second column.
    """
    found: list[Unembedded] = []
    for kind in KINDS:
        ids = [number for skipped, number in skip if skipped == kind]
        parameters = {"skip": ids, "limit": limit - len(found)}
        for row in connection.execute(query(f"unembedded_{kind}", second=second), parameters):
            passage = Passage(row["role"], row["content"], row["answers"] or "")
            found.append(Unembedded(kind, row["agent_identity"], row["id"], passage, row["worded"]))
    return found


def newest(connection: Connection, limit: int) -> list[Passage]:
    """The passages of the newest turns and entries, at most `limit` of each."""
    rows = [row for kind in KINDS for row in connection.execute(QUERIES[f"newest_{kind}"], {"limit": limit})]
    return [Passage(row["role"], row["content"]) for row in rows]


def embed(
    connection: Connection, found: Sequence[Unembedded], vectors: Sequence[Sequence[Vector]], *, second: bool = False
) -> int:
    """Store the vectors of each row, its own first and then those of its chunks, and the words of rows that lack them.

    Call it in a transaction, so that a row with a vector has all its chunks. With `second` the vectors go into the
    second column and its tables. Returns how many rows changed.
    """
    changed = 0
    for kind in KINDS:
        chosen = [(row, own) for row, own in zip(found, vectors, strict=True) if row.kind == kind]
        if not chosen:
            continue
        pieces.add(connection, kind, [((row.theme, row.id), own[1:]) for row, own in chosen], second=second)
        columns: dict[str, list[Any]] = {
            "themes": [row.theme for row, _ in chosen],
            "ids": [row.id for row, _ in chosen],
            "embeddings": [half(own[0]) for _, own in chosen],
            "words": [None if row.worded else tokenizer.document(row.passage.content) for row, _ in chosen],
        }
        for parameters in by_theme(connection, columns):
            changed += connection.execute(query(f"embed_{kind}", second=second), parameters).rowcount
    return changed


def add_words(connection: Connection, limit: int) -> int:
    """Add the words of up to `limit` rows that lack them, without those locked by another process. Returns how many.

    Call it in a transaction. Rows that another program or an earlier release inserted lack words.
    """
    added = 0
    for kind in KINDS:
        found = connection.execute(
            QUERIES[form_of(connection, f"unworded_{kind}")], {"limit": limit - added}
        ).fetchall()
        if found:
            columns = {
                "themes": [row["agent_identity"] for row in found],
                "ids": [row["id"] for row in found],
                "words": [tokenizer.document(row["content"]) for row in found],
            }
            for parameters in by_theme(connection, columns):
                added += connection.execute(QUERIES[f"word_{kind}"], parameters).rowcount
    return added


def count_words(connection: Connection, rows_min: int, hidden: str) -> bool:
    """Count the words in a sample of the theme whose count is oldest; False when no theme of `rows_min` rows is due.

    Themes that match the pattern `hidden` are left out of the count over all themes. Call it in a transaction.
    """
    for kind in KINDS:
        parameters = {"rows_min": rows_min, "reserved": hidden}
        due = connection.execute(QUERIES[f"uncounted_words_{kind}"], parameters).fetchone()
        if due:
            found = {"theme": due["agent_identity"], "rows": due["rows"], "sample": WORDS_SAMPLE_ROWS}
            connection.execute(QUERIES[f"count_words_{kind}"], {**parameters, **found})
            return True
    return False


def prune_events(connection: Connection, days: int) -> int:
    """Delete events of the ledger, tombstones, withdrawals, and notes of what was erased or pruned, older than `days`.

    Returns the number of events.
    """
    for name in ("prune_tombstones", "prune_withdrawals", "prune_erasures", "prune_pruned"):
        connection.execute(QUERIES[name], {"days": days})
    return connection.execute(QUERIES["prune_events"], {"days": days}).rowcount


def prune_expired(connection: Connection) -> int:
    """Delete up to 10,000 entries that have expired; the history keeps them. Returns how many."""
    return connection.execute(QUERIES["prune_expired"]).rowcount


def prune_facts(connection: Connection, days: int) -> int:
    """Delete up to 10,000 past facts, and as many closed scopes without a fact, that are older than `days` days.

    Returns how many facts.
    """
    connection.execute(QUERIES["prune_fact_scopes"], {"days": days})
    return connection.execute(QUERIES["prune_facts"], {"days": days}).rowcount


def prune_history(connection: Connection, days: int) -> int:
    """Delete up to 10,000 past entries that are older than `days` days; returns how many."""
    return connection.execute(QUERIES["prune_history"], {"days": days}).rowcount
