"""Refused events: a batch that Postgres refuses is halved until the bad event is alone, which becomes a dead letter."""

from __future__ import annotations

import logging

from ..errors import BadEvent, ModelChanged, TooSlow
from ..model import Event
from ..outbox.codec import encode
from ..outbox.dead_letters import DeadLetters
from ..outbox.segments import Record
from ..settings import Settings
from ..store import facts, rows
from ..store.connection.database import Database
from ..store.schema.verification import Origin
from .batch import Batch, passages_of

log = logging.getLogger("hermes.pgvector")

UNEXPECTED = "an unexpected error; the log names it"


def reject(batch: Batch, record: Record, reason: str) -> None:
    """Make a dead letter of a record."""
    if record.event is not None:
        reject_event(batch, record.event, reason)
        return
    folder = batch.source.folder
    name = f"damaged-{folder.name if folder else 'own'}-{record.position.segment}-{record.position.offset}"
    batch.rejected.append((name, reason, record.raw.decode("latin-1")))


def reject_event(batch: Batch, event: Event, reason: str) -> None:
    """Make a dead letter of an event."""
    batch.rejected.append((event.id, reason, encode(event).decode("ascii")))


def isolate(batch: Batch) -> None:
    """Have the events tried one by one, and reject the one that fails alone: it would block the queue for ever."""
    if batch.unprepared:
        reject(batch, batch.unprepared.popleft(), UNEXPECTED)
    elif batch.part_max == 1 and batch.prepared:
        reject_event(batch, batch.prepared.pop(0).event, UNEXPECTED)
    batch.part_max, batch.unexpected = 1, 0


def write(batch: Batch, database: Database, settings: Settings) -> None:
    """Write the batch in parts, and reject what Postgres refuses.

    What is too slow as a whole is tried in halves at the next attempt: it may only have waited for a lock. Raises
    Unavailable or SchemaNotApplied.
    """
    size = batch.part_max
    while batch.prepared:
        part = batch.prepared[:size]
        vector = next((passage.vector for passage in passages_of(part) if passage.vector), None)
        origin = Origin(batch.model, len(vector)) if vector else None
        try:
            with database.transaction(vectors=origin) as connection:
                fresh = rows.apply(connection, part, facts.pressure_of(settings), batch.erased)
        except ModelChanged as error:
            log.info("rows are stored without vectors, which follow later: %s", error)
            _drop_vectors(batch)
            continue
        except TooSlow:
            batch.part_max = max(1, len(part) // 2)
            raise
        except BadEvent as error:
            if len(part) > 1:
                size = len(part) // 2
                continue
            if any(passage.vector for passage in part[0].passages):
                # The vectors may be what does not fit; then those of the whole batch do not.
                _drop_vectors(batch)
                continue
            reject_event(batch, part[0].event, str(error))
        else:
            batch.counts.update(applied=fresh, already_there=len(part) - fresh)
            batch.unembedded |= any(passage.vector is None for passage in passages_of(part))
        del batch.prepared[: len(part)]
        size = batch.part_max


def _drop_vectors(batch: Batch) -> None:
    for passage in passages_of(batch.prepared):
        passage.vector, passage.pieces = None, ()


def keep(batch: Batch, letters: DeadLetters) -> None:
    """Keep the rejected events as dead letters. Raises OSError when these are full or cannot be written."""
    while batch.rejected:
        name, reason, raw = batch.rejected[0]
        if not letters.keep(name, reason, raw):
            raise OSError(f"{letters.folder} is full or cannot be written: free it, nothing is lost meanwhile")
        log.warning("an event was moved to the dead letters: %s; run: hermes-pgvector doctor", reason)
        batch.counts.update(set_aside=1)
        batch.rejected.popleft()
