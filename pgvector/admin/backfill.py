"""backfill: add the vectors and words that rows lack, in the foreground."""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

from rich.progress import Progress, TaskID

from ..embedding.compatibility import EmbedderCompatibility
from ..embedding.protocol import Embedder
from ..errors import EmbedderMismatch
from ..mirror.home import Home
from ..model import WORDS_ONLY
from ..settings import Settings, load
from ..store import statistics
from ..store.connection.database import Database
from ..store.statistics import Totals
from ..write.backfill import Backfill
from ..write.embedding_queue import EmbeddingQueue
from ..write.maintenance import Maintenance
from .console import Console, counted
from .database import start_server
from .embedder import PROBE
from .rate_limit import waiting
from .sentences import Division

POLL_S = 2.0
STEP_S = 0.1
REFUSED_SHOWN = 20


class _Job:
    """A running backfill: what the writer of an agent does, without its rests."""

    def __init__(self, database: Database, embedder: Embedder, settings: Settings, limit: int) -> None:
        self.database, self.limit = database, limit
        self._embedder = embedder
        self._woken, self._waits = threading.Event(), False
        self.vectors = Backfill(database, EmbeddingQueue(settings, self._woken.set), settings, rows_max=limit)
        self.words = Maintenance(database, settings, share=1.0)
        self.vectors.run_soon()
        self.words.run_soon()

    @property
    def tried(self) -> int:
        return self.vectors.rows_done + len(self.vectors.refused)

    def missing(self) -> Totals:
        """The numbers of rows without a vector, and of those without words."""
        with self.database.connection() as connection:
            return statistics.totals(connection)

    def step(self, console: Console) -> bool:
        """Do a part of the work; False when nothing is left. Raises as `waiting` does."""
        self._woken.clear()
        changed = self.vectors.step(self._embedder)
        self._waits = waiting(self.vectors, self._embedder, console, self._waits)
        changed |= self.words.step()
        if not changed:
            self._woken.wait(STEP_S)
        return self.vectors.wanted or self.words.wanted


def backfill(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Add the vectors and words of rows that lack them, the newest first. Every part is stored when it is done.

    Returns 1 when the embedder refused rows. Raises EmbedderMismatch, EmbedderUnavailable, DatabaseUnavailable, and
    KeyboardInterrupt after the result is printed.
    """
    settings = load(home)
    if args.batch:
        settings = settings.model_copy(update={"embed_batch_max": args.batch})
    with (
        closing(Database(settings, home)) as database,
        closing(EmbedderCompatibility(settings, Home(home).state, database)) as compatibility,
    ):
        embedder = _fitting(compatibility, database, settings.embed_timeout_s)
        job = _Job(database, embedder, settings, args.limit or sys.maxsize)
        division = Division(database, embedder, settings) if args.sentences else None
        interrupted = not _run(job, console, args.wait, division)
        left = job.missing()
    _report(job, console, left, interrupted, division)
    if interrupted:
        raise KeyboardInterrupt
    return 1 if job.vectors.refused or (division and division.refused) else 0


def _fitting(compatibility: EmbedderCompatibility, database: Database, timeout_s: float) -> Embedder:
    """The embedder, after it has answered; its model becomes that of the database.

    Raises EmbedderUnavailable and EmbedderMismatch.
    """
    start_server(database)
    if compatibility.embedder is not None:
        # A model may have to be loaded first, for which `wanted_dimensions` does not wait.
        compatibility.embedder.embed_query(PROBE, timeout_s)
    compatibility.match(database.prepare(compatibility.wanted_dimensions).dimensions, answered=True)
    embedder = compatibility.usable()
    if isinstance(embedder, str):
        raise EmbedderMismatch(embedder.removeprefix(f"{WORDS_ONLY}: "))
    return embedder


def _run(job: _Job, console: Console, wait_s: float, division: Division | None) -> bool:
    """Work until nothing is left or the limit is reached; False after Ctrl-C."""
    missing = job.missing()
    total = min(missing.without_vector, job.limit)
    try:
        with console.progress() as progress:
            vectors = progress.add_task("vectors", total=total)
            words = progress.add_task("words", total=missing.without_words)
            while (total or missing.without_words) and job.step(console):
                if not job.vectors.allowed:
                    _wait_for_lease(job, console, wait_s)
                _note(job, progress, vectors, words, total)
            _note(job, progress, vectors, words, total)
        if division:
            division.run(console, job.limit - job.vectors.rows_done)
    except KeyboardInterrupt:
        return False
    finally:
        job.vectors.stop()
        job.words.stop()
    return True


def _note(job: _Job, progress: Progress, vectors: TaskID, words: TaskID, total: int) -> None:
    progress.update(vectors, completed=job.tried, total=max(total, job.tried))
    progress.update(words, completed=job.words.rows_done)


def _wait_for_lease(job: _Job, console: Console, wait_s: float) -> None:
    """Watch the agent that adds vectors, until it has ended or makes no progress.

    Two processes at once are safe but do the same work twice.
    """
    console.say("an agent is doing the same already; watching its progress (Ctrl-C to stop watching)")
    left, quiet_since = math.inf, time.monotonic()
    while not job.vectors.claim():
        missing = job.missing().without_vector
        if not missing:
            break
        if missing < left:
            left, quiet_since = missing, time.monotonic()
        elif time.monotonic() - quiet_since >= wait_s:
            console.say(f"the agent made no progress for {wait_s:g} s; starting beside it")
            job.vectors.needs_lease = False
            break
        time.sleep(POLL_S)
    job.vectors.run_soon()


def _report(job: _Job, console: Console, left: Totals, interrupted: bool, division: Division | None) -> None:
    embedded, worded = job.vectors.rows_done, job.words.rows_done
    refused = [{"kind": kind, "id": row, "reason": reason} for (kind, row), reason in job.vectors.refused.items()]
    document = {"embedded": embedded, "worded": worded, "left": left.without_vector, "left_words": left.without_words}
    if division:
        document["divided"] = division.rows_done
    console.data({**document, "refused": refused, "interrupted": interrupted})
    if interrupted:
        console.say("interrupted; finished parts are stored")
    if not (embedded or worded or left.without_vector or left.without_words):
        console.show("nothing to do: every row has a vector and words")
    else:
        console.show(
            f"embedded {counted(embedded, 'row')}; {counted(left.without_vector, 'row')} left without a vector",
            f"added words to {counted(worded, 'row')}; {counted(left.without_words, 'row')} left without words",
        )
    if division:
        division.report(console)
    for (kind, row), reason in list(job.vectors.refused.items())[:REFUSED_SHOWN]:
        console.say(f"refused: row {row} of {kind}: {reason}")
