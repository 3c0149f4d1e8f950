"""The timeline of the server, which a failover changes, and the position of the last commit of this process in it."""

from __future__ import annotations

import logging
import threading

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow

from ..queries import QUERIES

log = logging.getLogger("hermes.pgvector")

_ASKED = QUERIES["server_timeline"].encode()
_END = b"; ".join((QUERIES["wrote"].encode(), b"commit", _ASKED))


class ServerTimeline:
    """System identifier and timeline of the server as last seen; empty before, and where they are not told.

    Safe for any thread.
    """

    def __init__(self) -> None:
        self.latest = ""
        self.asked: tuple[bytes, ...] = ()
        """What a transaction asks at its opening, for `note`: a statement, or none where the server refuses it."""
        self.followed = False
        """Whether recalls read from a standby, so that `reached` is kept."""
        self.reached = 0
        """A position in the WAL of `latest`: before it is all that this process has committed, or knew to be there."""
        self._lock = threading.Lock()

    def look(self, connection: psycopg.Connection[DictRow]) -> None:
        """Ask the server, on a connection in autocommit mode, and find out whether it tells."""
        try:
            answer = connection.execute(QUERIES["server_timeline"]).fetchone()
        except psycopg.OperationalError:
            raise
        except psycopg.DatabaseError as error:
            # Servers that only speak the protocol of Postgres lack these functions.
            log.info("the server does not tell its timeline (%s): stored events are not kept", type(error).__name__)
            self.asked = ()
            return
        self.asked = (_ASKED,)
        self.note(answer, reached=True)

    def note(self, answer: DictRow | None = None, *, reached: bool = False) -> None:
        """Note an answer to the statement, if there is one; with `reached` also its position."""
        if answer and answer["timeline"]:
            with self._lock:
                if answer["timeline"] != self.latest:
                    self.latest, self.reached = answer["timeline"], 0
                if reached:
                    self.reached = max(self.reached, answer["position"])

    def end(self, connection: psycopg.Connection[DictRow]) -> None:
        """Commit a transaction, and note its position if it wrote, in one round trip; only where it is `followed`."""
        if self.followed and self.asked and connection.info.transaction_status == TransactionStatus.INTRANS:
            answers = connection.execute(_END)
            wrote = answers.fetchone()
            answers.nextset()  # that of the commit
            answers.nextset()
            if wrote and wrote["wrote"]:
                self.note(answers.fetchone(), reached=True)
