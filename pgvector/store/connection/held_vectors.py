"""Which vectors a database holds, as a process knows it, and which process that is."""

from __future__ import annotations

import json
import time
from uuid import uuid4

import psycopg
from psycopg.rows import DictRow

from ...errors import ModelChanged
from ..queries import QUERIES
from ..schema.verification import Origin, SchemaState, check_served

# A process looks now and then; without so many looks it counts as ended.
LIVE_INTERVALS = 3


class HeldVectors:
    """The schema as last read, and whether the vectors are of another model by now. Safe for any thread.

    `names` is the embedding model that the settings of this process name, empty when they leave it open. `home` is what
    others may know of its home: a label, or the beginning of its random id.
    """

    def __init__(self, interval_s: float) -> None:
        """`interval_s` is the time between two looks."""
        self.state: SchemaState | None = None
        self.outdated = False
        self.names = self.home = ""
        self._interval_s = interval_s
        self._client, self._holder = f"client {uuid4().hex}", ""
        self._there_until = 0.0

    def look(self, connection: psycopg.Connection[DictRow]) -> None:
        """Note whether the vectors are of another model by now, and tell administrators that this process is there."""
        self._compare(connection.execute(QUERIES["held_vectors"]).fetchone())
        self._holder = json.dumps({"home": self.home, "model": self.names})
        seconds = LIVE_INTERVALS * self._interval_s
        self._there_until = time.monotonic() + seconds
        connection.execute(QUERIES["appear"], {"name": self._client, "holder": self._holder, "seconds": seconds})

    @property
    def announced(self) -> bool:
        """Whether the database counts this process as live."""
        return time.monotonic() < self._there_until

    def leave(self, connection: psycopg.Connection[DictRow]) -> None:
        """Tell administrators that this process ends."""
        self._there_until = 0.0
        connection.execute(QUERIES["release_lease"], {"name": self._client, "holder": self._holder})

    def check(self, row: DictRow, vectors: Origin | None) -> None:
        """Raise ModelChanged when the database holds vectors of another model than these are of, and ClientTooOld.

        `row` is the answer to `held_vectors`.
        """
        check_served(row["oldest_client"])
        held = self._compare(row)
        if vectors is None:
            return
        # A database without a model has no vectors yet. One of another length refuses them.
        if held.model not in ("", vectors.model) or (held.model and held.dimensions != vectors.dimensions):
            self.outdated = True
            raise ModelChanged(
                f"the database holds vectors of {held.model} ({held.dimensions} numbers) by now, "
                f"not of {vectors.model} ({vectors.dimensions})"
            )

    def _compare(self, row: DictRow | None) -> Origin:
        """What the database holds, by an answer to `held_vectors`; notes whether that is not what `state` says."""
        held = Origin(row["model"], row["dimensions"]) if row else Origin("", 0)
        state = self.state
        if state is not None and held != (state.embedding_model or held.model, state.dimensions):
            self.outdated = True
        return held
