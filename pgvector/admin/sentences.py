"""The sentences of stored messages that have no vectors for them, embedded by `backfill --sentences`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, wait

from ..embedding.protocol import Embedder
from ..errors import Refused
from ..model import Vector
from ..settings import Settings
from ..store import pieces
from ..store.connection.database import Database
from ..store.passages import Passage
from ..store.schema.verification import Origin
from ..write.embedding_queue import EmbeddingQueue
from .console import Console, counted

ROWS = 64


class Division:
    """Adds the vectors of sentences to stored messages that have none, batch by batch; `rows_done` counts them.

    A message with a sentence that the embedder refuses keeps the vector of the whole; `refused` counts those.
    """

    def __init__(self, database: Database, embedder: Embedder, settings: Settings) -> None:
        self._database, self._embedder, self._settings = database, embedder, settings
        self._queue = EmbeddingQueue(settings, lambda: None)
        self.rows_done = self.refused = 0

    def run(self, console: Console, limit: int) -> None:
        """Work until `limit` messages got vectors or none is left; finished batches stay when it is interrupted.

        Raises PgvectorError.
        """
        with console.progress() as progress:
            task = progress.add_task("sentences", total=None)
            for found in self._batches():
                self._embed(found[: limit - self.rows_done])
                progress.update(task, completed=self.rows_done)
                if self.rows_done >= limit:
                    return

    def report(self, console: Console) -> None:
        """Print how many messages got vectors."""
        refused = f"; {counted(self.refused, 'message')} refused by the embedder" if self.refused else ""
        console.show(f"embedded the sentences of {counted(self.rows_done, 'message')}{refused}")

    def _batches(self) -> Iterator[list[tuple[tuple[str, int], list[str]]]]:
        """The keys of the messages of more than one sentence, with these."""
        after = ("", 0)
        while True:
            with self._database.connection() as connection:
                found = pieces.undivided(connection, after, ROWS)
            if not found:
                return
            after = found[-1][0]
            divided = [(key, Passage("user", content).texts(self._settings)[1:]) for key, content in found]
            yield [(key, texts) for key, texts in divided if texts]

    def _embed(self, found: list[tuple[tuple[str, int], list[str]]]) -> None:
        wanted = [(key, self._queue.submit(self._embedder, texts)) for key, texts in found]
        wait([vector for _, vectors in wanted for vector in vectors])
        embedded = [(key, [each.result() for each in vectors]) for key, vectors in wanted if not _refused(vectors)]
        self.refused += len(wanted) - len(embedded)
        if embedded:
            origin = Origin(self._embedder.model, len(embedded[0][1][0]))
            with self._database.transaction(vectors=origin) as connection:
                pieces.add(connection, "turns", embedded)
            self.rows_done += len(embedded)


def _refused(vectors: list[Future[Vector]]) -> bool:
    return any(isinstance(vector.exception(), Refused) for vector in vectors)
