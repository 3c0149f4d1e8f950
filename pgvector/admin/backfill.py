"""backfill: embed the rows that have no vector, in the foreground."""

from __future__ import annotations

import argparse
import math
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from uuid import uuid4

from ..embedding.compatibility import EmbedderCompatibility
from ..embedding.protocol import Embedder
from ..embedding.vectors import TextRefused
from ..errors import EmbedderMismatch, EmbedderUnavailable
from ..mirror.home import Home
from ..model import WORDS_ONLY, Vector
from ..settings import Settings, load
from ..store import statistics, upkeep
from ..store.connection.database import Connection, Database
from ..store.queries import Kind
from ..store.upkeep import Unembedded
from .console import Console, counted
from .database import start_server
from .embedder import PROBE

# The lease outlasts the embedding of one batch, which renews it.
LEASE_MARGIN_S = 60.0
# Time to embed one batch: the work lost when a request fails.
BATCH_S = 2.0
POLL_S = 2.0
REFUSED_MAX = 1000
REFUSED_SHOWN = 20


@dataclass
class _Job:
    """State of a running backfill. `refused` maps each row that the embedder refused to its reason."""

    database: Database
    embedder: Embedder
    settings: Settings
    batch: int
    limit: int
    holder: str = field(default_factory=lambda: uuid4().hex)
    done: int = 0
    refused: dict[tuple[Kind, int], str] = field(default_factory=dict)

    @property
    def tried(self) -> int:
        return self.done + len(self.refused)

    def connection(self) -> AbstractContextManager[Connection]:
        return self.database.connection(self.settings.connect_timeout_s)

    def missing(self) -> int:
        """The number of rows without a vector."""
        with self.connection() as connection:
            return statistics.totals(connection).without_vector


def backfill(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Embed rows without a vector, lowest ids first. Every batch is stored when it is done.

    Returns 1 when the embedder refused rows. Raises EmbedderMismatch, EmbedderUnavailable, DatabaseUnavailable, and
    KeyboardInterrupt after the result is printed.
    """
    settings = load(home)
    database = Database(settings, home)
    compatibility = EmbedderCompatibility(settings, Home(home).state, database)
    try:
        embedder = _fitting(compatibility, database, settings.embed_timeout_s)
        job = _Job(database, embedder, settings, args.batch or settings.embed_batch_max, args.limit or sys.maxsize)
        total = min(job.missing(), job.limit)
        interrupted = total > 0 and not _run(job, console, total, args.wait)
        left = job.missing()
    finally:
        compatibility.close()
        database.close()
    _report(job, console, left, interrupted)
    if interrupted:
        raise KeyboardInterrupt
    return 1 if job.refused else 0


def _fitting(compatibility: EmbedderCompatibility, database: Database, timeout_s: float) -> Embedder:
    """The embedder, after it has answered; its model becomes that of the database.

    Raises EmbedderUnavailable and EmbedderMismatch.
    """
    start_server(database)
    if compatibility.embedder is not None:
        # A model may have to be loaded first, for which `wanted_dimensions` does not wait.
        compatibility.embedder.embed_query(PROBE, timeout_s)
    compatibility.match(database.prepare(compatibility.wanted_dimensions()).dimensions, timeout_s)
    embedder = compatibility.usable()
    if isinstance(embedder, str):
        raise EmbedderMismatch(embedder.removeprefix(f"{WORDS_ONLY}: "))
    return embedder


def _run(job: _Job, console: Console, total: int, wait_s: float) -> bool:
    """Embed until nothing is left or the limit is reached; False after Ctrl-C."""
    try:
        if _take_lease(job, console, wait_s):
            with console.progress() as progress:
                bar = progress.add_task("embedding", total=total)
                while job.tried < job.limit and _step(job):
                    progress.update(bar, completed=job.tried, total=max(total, job.tried))
    except KeyboardInterrupt:
        return False
    finally:
        with job.connection() as connection:
            upkeep.release(connection, upkeep.VECTORS_LEASE, job.holder)
    return True


def _take_lease(job: _Job, console: Console, wait_s: float) -> bool:
    """Take the lease for backfilling, or wait for the agent that holds it; False when it left nothing to do.

    Two processes at once are safe but do the same work twice, so this waits only while the agent makes progress.
    """
    left, quiet_since = math.inf, time.monotonic()
    while not _claim(job):
        if left == math.inf:
            console.say("an agent is doing the same already; watching its progress (Ctrl-C to stop watching)")
        missing = job.missing()
        if not missing:
            return False
        if missing < left:
            left, quiet_since = missing, time.monotonic()
        elif time.monotonic() - quiet_since >= wait_s:
            console.say(f"the agent made no progress for {wait_s:g} s; starting beside it")
            return True
        time.sleep(POLL_S)
    return True


def _claim(job: _Job) -> bool:
    seconds = job.settings.embed_timeout_s + LEASE_MARGIN_S
    with job.connection() as connection:
        return upkeep.claim(connection, upkeep.VECTORS_LEASE, job.holder, seconds)


def _step(job: _Job) -> bool:
    """Embed and store one batch; False when no row is left. Raises EmbedderUnavailable or EmbedderMismatch."""
    fits = int(BATCH_S / max(job.embedder.seconds_per_text, 1e-4))
    most = max(1, min(job.batch, fits, job.limit - job.tried))
    with job.connection() as connection:
        found = upkeep.unembedded(connection, most, list(job.refused))
    if not found:
        return False
    try:
        _embed_each(job, found)
    except EmbedderUnavailable as error:
        done = counted(job.done, "row")
        raise EmbedderUnavailable(f"{error}; {done} done, run the command again to continue") from None
    if len(job.refused) >= REFUSED_MAX:
        raise EmbedderMismatch(f"{job.embedder.model} refused {REFUSED_MAX} rows; see the log of the endpoint")
    return True


def _embed_each(job: _Job, found: list[Unembedded]) -> None:
    """Embed and store rows: after a failure one by one, without those that the embedder refuses."""
    try:
        _embed(job, found)
    except (TextRefused, EmbedderUnavailable):
        for row in found:
            try:
                _embed(job, [row])
            except TextRefused as error:
                job.refused[(row.kind, row.id)] = str(error)


def _embed(job: _Job, found: list[Unembedded]) -> None:
    """Embed and store rows, in requests of at most `batch` texts."""
    texts = [row.texts(job.settings) for row in found]
    flat = [text for own in texts for text in own]
    vectors: list[Vector] = []
    for start in range(0, len(flat), job.batch):
        _claim(job)
        vectors += job.embedder.embed_passages(flat[start : start + job.batch], job.settings.embed_timeout_s)
    left = iter(vectors)
    with job.database.transaction(job.settings.connect_timeout_s, job.settings.statement_timeout_s) as connection:
        upkeep.embed(connection, found, [list(islice(left, len(own))) for own in texts])
    job.done += len(found)


def _report(job: _Job, console: Console, left: int, interrupted: bool) -> None:
    refused = [{"kind": kind, "id": row, "reason": reason} for (kind, row), reason in job.refused.items()]
    console.data({"embedded": job.done, "left": left, "refused": refused, "interrupted": interrupted})
    if interrupted:
        console.say("interrupted; finished batches are stored")
    if job.done == 0 and left == 0:
        console.show("nothing to do: every row has a vector")
    else:
        console.show(f"embedded {counted(job.done, 'row')}; {counted(left, 'row')} left without a vector")
    for (kind, row), reason in list(job.refused.items())[:REFUSED_SHOWN]:
        console.say(f"refused: row {row} of {kind}: {reason}")
