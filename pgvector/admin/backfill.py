"""backfill: embed in the foreground what was stored without a vector."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from uuid import uuid4

from rich.progress import Progress, TaskID

from ..embedding import factory
from ..embedding.protocol import Embedder
from ..embedding.vectors import TextRefused
from ..errors import EmbedderMismatch, EmbedderUnavailable
from ..model import Vector
from ..settings import Settings, load
from ..store import statistics, upkeep
from ..store.connection.database import Database
from ..store.queries import Kind
from ..store.upkeep import Unembedded
from .console import Console, counted
from .migration import start_server

# Longer than the embedding of one batch may take, which renews it.
LEASE_MARGIN_S = 60.0
# Work lost when one request fails, and the step of the progress bar.
BATCH_S = 2.0
POLL_S = 2.0
REFUSED_MAX = 1000
REFUSED_SHOWN = 20


@dataclass
class _Job:
    """A backfill on its way. `refused` maps rows that the embedder does not take to its reason."""

    database: Database
    embedder: Embedder
    settings: Settings
    batch: int
    limit: int
    holder: str = field(default_factory=lambda: uuid4().hex)
    done: int = 0
    refused: dict[tuple[Kind, int], str] = field(default_factory=dict)

    @property
    def asked(self) -> int:
        """Rows that were tried."""
        return self.done + len(self.refused)


def backfill(home: Path, console: Console, *, batch: int | None, limit: int | None, wait_s: float) -> int:
    """Embed rows without a vector, oldest ids first. What is stored stays stored when it is interrupted.

    `limit` bounds the rows that are tried. `wait_s` is how long an agent that is at it already may make no progress.
    Returns 1 when the embedder refused rows.
    """
    settings = load(home)
    database = Database(settings, home)
    embedder = factory.build(settings)
    job = _Job(database, embedder, settings, batch or settings.embed_batch_max, limit or 1 << 62)
    try:
        _check_fit(job)
        total = min(_missing(database), job.limit)
        interrupted = total > 0 and not _run(job, console, total, wait_s)
        left = _missing(database)
    finally:
        embedder.close()
        database.close()
    _tell(job, console, left, interrupted)
    if interrupted:
        raise KeyboardInterrupt
    return 1 if job.refused else 0


def _check_fit(job: _Job) -> None:
    """Raise EmbedderMismatch unless the vectors of this home's embedder belong into the database."""
    database, embedder = job.database, job.embedder
    start_server(database)
    with database.connection(job.settings.connect_timeout_s) as connection:
        state = database.verify(connection)
    if embedder.dimensions is None or state.embedding_model is None:
        # Also a known model has to answer before it becomes that of the database.
        embedder.embed_query("dimensions", job.settings.embed_timeout_s)
    if embedder.dimensions != state.dimensions:
        raise EmbedderMismatch(
            f"{embedder.model} makes vectors of {embedder.dimensions} numbers, the database holds vectors of "
            f"{state.dimensions}; set embed_url and embed_model to the model that made them"
        )
    model = database.claim_model(embedder.model)
    if model != embedder.model:
        raise EmbedderMismatch(
            f"the database holds vectors of {model}, this home is set to {embedder.model}; use the same model"
        )


def _run(job: _Job, console: Console, total: int, wait_s: float) -> bool:
    """Work until nothing is left or the limit is reached; False when the operator interrupted it."""
    try:
        with console.progress() as progress:
            bar = progress.add_task("embedding", total=total)
            if _take_lease(job, console, progress, bar, wait_s):
                while job.asked < job.limit and _step(job):
                    progress.update(bar, completed=job.asked, total=max(total, job.asked))
    except KeyboardInterrupt:
        return False
    finally:
        with job.database.connection(job.settings.connect_timeout_s) as connection:
            upkeep.release(connection, upkeep.VECTORS_LEASE, job.holder)
    return True


def _take_lease(job: _Job, console: Console, progress: Progress, bar: TaskID, wait_s: float) -> bool:
    """Become the one process that embeds, or watch the one that does; False when it has left nothing to do.

    Two at once would do no harm, only the same work twice, so one that does not get on is not waited for.
    """
    before = left = _missing(job.database)
    quiet_since = time.monotonic()
    told = False
    while not _claim(job):
        if not told:
            told = True
            console.say("an agent is filling in vectors already; watching it (Ctrl-C to leave it alone)")
        if left == 0:
            return False
        if time.monotonic() - quiet_since >= wait_s:
            console.say(f"it did nothing for {wait_s:g} s; going ahead beside it")
            return True
        time.sleep(POLL_S)
        now = _missing(job.database)
        if now < left:
            quiet_since = time.monotonic()
        left = now
        progress.update(bar, completed=max(0, before - left))
    return True


def _claim(job: _Job) -> bool:
    seconds = job.settings.embed_timeout_s + LEASE_MARGIN_S
    with job.database.connection(job.settings.connect_timeout_s) as connection:
        return upkeep.claim(connection, upkeep.VECTORS_LEASE, job.holder, seconds)


def _step(job: _Job) -> bool:
    """Embed and store one batch; False when no row is left. Raises EmbedderUnavailable or EmbedderMismatch."""
    fits = int(BATCH_S / max(job.embedder.seconds_per_text, 1e-4))
    most = max(1, min(job.batch, fits, job.limit - job.asked))
    with job.database.connection(job.settings.connect_timeout_s) as connection:
        found = upkeep.unembedded(connection, most, list(job.refused))
    if not found:
        return False
    try:
        _embed(job, found)
    except EmbedderUnavailable as error:
        raise EmbedderUnavailable(f"{error}; {counted(job.done, 'row')} done, run again to go on") from None
    if len(job.refused) >= REFUSED_MAX:
        raise EmbedderMismatch(f"{job.embedder.model} refused {REFUSED_MAX} rows; see the log of the endpoint")
    return True


def _embed(job: _Job, found: list[Unembedded]) -> None:
    """Embed and store rows: without the one that is refused, in halves when all at once take too long."""
    if not found:
        return
    texts = [row.texts(job.settings) for row in found]
    try:
        vectors = _vectors(job, [text for own in texts for text in own])
    except TextRefused as error:
        spoilt = next(row for row, end in zip(found, accumulate(map(len, texts)), strict=True) if error.index < end)
        job.refused[(spoilt.kind, spoilt.id)] = str(error)
        _embed(job, [row for row in found if row is not spoilt])
        return
    except EmbedderUnavailable:
        if len(found) == 1:
            raise
        _embed(job, found[: len(found) // 2])
        _embed(job, found[len(found) // 2 :])
        return
    limits = job.settings.connect_timeout_s, job.settings.statement_timeout_s
    with job.database.transaction(*limits) as connection:
        left = iter(vectors)
        upkeep.embed(connection, found, [list(islice(left, len(own))) for own in texts])
    job.done += len(found)


def _vectors(job: _Job, texts: list[str]) -> list[Vector]:
    """Embed in requests of `batch` texts. The index in TextRefused counts over all of them."""
    vectors: list[Vector] = []
    for start in range(0, len(texts), job.batch):
        _claim(job)
        try:
            vectors += job.embedder.embed_passages(texts[start : start + job.batch], job.settings.embed_timeout_s)
        except TextRefused as error:
            raise TextRefused(str(error), start + error.index) from None
    return vectors


def _missing(database: Database) -> int:
    with database.connection(10.0) as connection:
        return statistics.totals(connection).without_vector


def _tell(job: _Job, console: Console, left: int, interrupted: bool) -> None:
    refused = [{"kind": kind, "id": row, "reason": reason} for (kind, row), reason in job.refused.items()]
    console.data({"embedded": job.done, "left": left, "refused": refused, "interrupted": interrupted})
    if interrupted:
        console.say("interrupted; what is done is stored")
    if job.done == 0 and left == 0:
        console.show("nothing to do: every row has its vector")
    else:
        console.show(f"embedded {counted(job.done, 'row')}; {counted(left, 'row')} left without a vector")
    for (kind, row), reason in list(job.refused.items())[:REFUSED_SHOWN]:
        console.say(f"refused: row {row} of {kind}: {reason}")
