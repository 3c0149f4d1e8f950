"""A hot standby that recalls are read from: each transaction first finds out whether it is far enough."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from psycopg.rows import DictRow

from ...errors import DatabaseUnavailable, StandbyBehind
from ...settings import Settings
from ..queries import QUERIES
from .database import Connection, Database
from .server_timeline import ServerTimeline

# How long a recall waits for a connection to the standby, and for the first answer on it.
OPENING_S_MAX = 0.5


class Standby(Database):
    """The server of `recall_dsn`. Its transactions are read-only, and raise as those of `Database` do.

    They also raise StandbyBehind at their opening when the standby lacks what this process has stored, or is more than
    `recall_lag_s_max` seconds behind; while the primary is `doubted`, any lag is accepted. They raise
    DatabaseUnavailable when the server is no standby of the primary.
    """

    timeline: StandbyTimeline

    def __init__(self, settings: Settings, primary: Database) -> None:
        super().__init__(settings, primary.home, "recall_dsn", read_only=True)
        self.timeline = StandbyTimeline(primary, settings.recall_lag_s_max)
        primary.timeline.followed = True

    def transaction(
        self, timeout_s: float | None = None, statement_timeout_s: float | None = None, **more: Any
    ) -> AbstractContextManager[Connection]:
        """As that of `Database`, within OPENING_S_MAX seconds."""
        opening_s = OPENING_S_MAX if timeout_s is None else min(timeout_s, OPENING_S_MAX)
        return super().transaction(opening_s, statement_timeout_s, **more)

    def try_out(self) -> None:
        """Open a transaction. Raises what it raises when the standby is not to be read from."""
        with self.transaction(OPENING_S_MAX, OPENING_S_MAX):
            pass


class StandbyTimeline(ServerTimeline):
    """Compares the state of a standby, which each transaction asks for at its opening, with that of the primary."""

    def __init__(self, primary: Database, lag_s_max: float) -> None:
        super().__init__()
        self.asked = (QUERIES["standby_state"].encode(),)
        self.lag_s: float | None = None
        """By how much it was behind when it was last asked, as far as it knows."""
        self._primary, self._lag_s_max = primary, lag_s_max

    def note(self, answer: DictRow | None = None, *, reached: bool = False) -> None:  # noqa: ARG002
        """Raise StandbyBehind or DatabaseUnavailable when the server with this answer is not to be read from."""
        if answer is None:
            return
        self.lag_s = lag_s = answer["lag_s"]
        if not answer["standby"]:
            raise DatabaseUnavailable("it is no standby; was it promoted?")
        ours, _, number = self._primary.timeline.latest.partition("-")
        if ours not in ("", answer["system"]):
            raise DatabaseUnavailable("it is a standby of another server")
        if self._primary.doubted:
            return
        if not ours:
            raise StandbyBehind("the primary has not told its timeline")
        if number != answer["timeline"]:
            raise StandbyBehind("it is on another timeline than the primary, as after a failover")
        if lag_s is None or lag_s > self._lag_s_max:
            how = "an unknown time" if lag_s is None else f"{lag_s:.1f} s"
            raise StandbyBehind(f"it is {how} behind, more than recall_lag_s_max")
        if answer["position"] < self._primary.timeline.reached:
            raise StandbyBehind("")
