"""Rows without a vector or without words: who fills them in, and how."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..model import Vector
from ..settings import Settings
from ..text import tokenizer
from .connection.database import Connection, half
from .passages import Passage
from .queries import KINDS, QUERIES, Kind

WORDS_SAMPLE_ROWS = 2000
# The leases of what one process of a fleet does at a time: fill in vectors, which a backfill does too, count common
# words, and forget what is old.
HEAL, WORDS, PRUNE = "heal", "words", "prune"


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A stored row that has no vector yet."""

    kind: Kind
    theme: str
    id: int
    passage: Passage

    def texts(self, settings: Settings) -> list[str]:
        """What is embedded for it: the text of its own vector, then the pieces of a long one."""
        return [self.passage.embedded, *self.passage.pieces(settings)]


def claim(connection: Connection, name: str, holder: str, seconds: float) -> bool:
    """Take or renew a lease that one process of the fleet holds at a time."""
    return (
        connection.execute(QUERIES["claim_lease"], {"name": name, "holder": holder, "seconds": seconds}).rowcount == 1
    )


def release(connection: Connection, name: str, holder: str) -> None:
    """Give a lease back; harmless when somebody else holds it."""
    connection.execute(QUERIES["release_lease"], {"name": name, "holder": holder})


def unembedded(connection: Connection, limit: int, skip: Collection[tuple[Kind, int]] = ()) -> list[Unembedded]:
    """Up to `limit` rows without a vector, entries first, without those named by `skip`."""
    found: list[Unembedded] = []
    for kind in KINDS:
        if len(found) >= limit:
            break
        ids = [number for skipped, number in skip if skipped == kind]
        cursor = connection.execute(QUERIES[f"unembedded_{kind}"], {"skip": ids, "limit": limit - len(found)})
        found += [
            Unembedded(
                kind, row["agent_identity"], row["id"], Passage(row["role"], row["content"], row["answers"] or "")
            )
            for row in cursor
        ]
    return found


def embed(connection: Connection, found: Sequence[Unembedded], vectors: Sequence[Sequence[Vector]]) -> int:
    """Store the vectors of each row, its own first and then those of its pieces, and the words of rows that lack them.

    Call it in a transaction: a row that has a vector has its pieces. Returns how many rows were changed.
    """
    changed = 0
    for kind in KINDS:
        chosen = [(row, own) for row, own in zip(found, vectors, strict=True) if row.kind == kind]
        if not chosen:
            continue
        _add_pieces(connection, kind, chosen)
        parameters = {
            "themes": [row.theme for row, _ in chosen],
            "ids": [row.id for row, _ in chosen],
            "embeddings": [half(own[0]) for _, own in chosen],
            "words": [tokenizer.document(row.passage.content) for row, _ in chosen],
        }
        changed += connection.execute(QUERIES[f"embed_{kind}"], parameters).rowcount
    return changed


def _add_pieces(connection: Connection, kind: Kind, chosen: Sequence[tuple[Unembedded, Sequence[Vector]]]) -> None:
    pieces = [(row, number, vector) for row, own in chosen for number, vector in enumerate(own[1:])]
    if pieces:
        parameters = {
            "themes": [row.theme for row, _, _ in pieces],
            "ids": [row.id for row, _, _ in pieces],
            "pieces": [number for _, number, _ in pieces],
            "embeddings": [half(vector) for _, _, vector in pieces],
        }
        connection.execute(QUERIES[f"add_pieces_{kind}"], parameters)


def add_words(connection: Connection, limit: int) -> int:
    """Give up to `limit` rows their words, as far as no other process is at it. Returns how many.

    Call it in a transaction. Rows lack words when others than this package put them in, or an earlier release did.
    """
    added = 0
    for kind in KINDS:
        found = connection.execute(QUERIES[f"unworded_{kind}"], {"limit": limit - added}).fetchall()
        if found:
            parameters = {
                "themes": [row["agent_identity"] for row in found],
                "ids": [row["id"] for row in found],
                "words": [tokenizer.document(row["content"]) for row in found],
            }
            added += connection.execute(QUERIES[f"word_{kind}"], parameters).rowcount
    return added


def count_words(connection: Connection, rows_min: int, hidden: str) -> bool:
    """Count, in a sample, the words of the one theme of more than `rows_min` rows that is most due; whether one was.

    Themes that match the pattern `hidden` are counted for themselves and not among all. Call it in a transaction.
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
    """Forget applied events, and marks of what was removed, older than any spool can be. Returns how many events."""
    connection.execute(QUERIES["prune_tombstones"], {"days": days})
    connection.execute(QUERIES["prune_withdrawals"], {"days": days})
    return connection.execute(QUERIES["prune_events"], {"days": days}).rowcount
