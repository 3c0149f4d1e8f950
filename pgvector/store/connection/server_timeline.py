"""The timeline of the server: on another one, what was stored before may be missing."""

from __future__ import annotations

import logging

import psycopg
from psycopg.rows import DictRow

from ..queries import QUERIES

log = logging.getLogger("hermes.pgvector")


class ServerTimeline:
    """System identifier and timeline of the server as last seen; empty before, and where they are not told.

    Safe for any thread.
    """

    def __init__(self) -> None:
        self.latest = ""
        self.asked: tuple[bytes, ...] = ()
        """What a transaction asks at its opening, for `note`: a statement, or none where the server refuses it."""

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
        self.asked = (QUERIES["server_timeline"].encode(),)
        self.note(answer)

    def note(self, answer: DictRow | None = None) -> None:
        """Note an answer to the statement, if there is one."""
        self.latest = (answer["timeline"] if answer else "") or self.latest
