"""One run of a scenario: the package under test, how much work there is, and agents whose session has just begun."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from environment import DIMENSIONS, AgentProcess, Environment, Package
from progress import EMBEDDED, Progress, follow
from texts import turns

# Figures by name. A name ends with the unit; a value is None when what it measures did not happen in time.
Figures = dict[str, Any]
Turn = tuple[str, str]
SETTLE_S = 1.0
WARM_S_MAX = 30.0


@dataclass(frozen=True)
class Sizes:
    """The amount of work of each scenario."""

    hook_turns: int = 1000
    burst_turns: int = 2000
    bundled_turns: int = 300
    bundled_long_turns: int = 24
    steady_per_s: float = 10.0
    steady_s: float = 30.0
    processes: int = 8
    sessions: int = 8
    session_turns: int = 25
    idle_s: float = 60.0
    outage_turns: int = 200
    outage_s: float = 10.0
    fault_turns: int = 100
    fault_s: float = 10.0
    fault_gap_s: float = 3.0
    orphan_rows: int = 200
    far_sessions: int = 16
    far_turns: int = 25
    leaked: int = 1000
    leaked_peer: int = 30
    peer_quiet_s: float = 6.0
    limit_s: float = 120.0

    @classmethod
    def scaled(cls, share: float, limit_s: float) -> Sizes:
        """A share of the work, from 0 to 1, with a minimum for each kind. Idle times are shortened, too.

        The number of hook calls stays: they are fast, and a 99th percentile needs many of them.
        """
        least = {
            "burst_turns": 40, "bundled_turns": 5, "bundled_long_turns": 2, "steady_s": 2, "processes": 2,
            "sessions": 2, "session_turns": 5, "idle_s": 3, "outage_turns": 20, "outage_s": 1, "fault_turns": 5,
            "fault_s": 1, "fault_gap_s": 0, "orphan_rows": 6, "far_sessions": 3, "far_turns": 4, "leaked": 20,
            "leaked_peer": 3, "peer_quiet_s": 3,
        }  # fmt: skip
        full = {field.name: field.default for field in fields(cls)}
        parts = {name: max(number, type(number)(full[name] * share)) for name, number in least.items()}
        return cls(**(parts if share < 1 else {}), limit_s=limit_s)


@dataclass(frozen=True)
class Session:
    """An agent process with one session, its database, the rows that are there already, and its usage so far."""

    agent: AgentProcess
    dsn: str
    rows: int
    usage: dict[str, float]
    _run: Run

    def send(self, rows: int, *, per_s: float = 0.0) -> tuple[Progress, dict[str, float]]:
        """Have the prepared turns sent and follow their rows; returns the progress and the times of the hook."""
        began = time.monotonic()
        self.agent.begin("send", per_s=per_s)
        progress = self.follow(rows, began)
        return progress, self.agent.end()

    def follow(self, rows: int, since: float, embedded: str = EMBEDDED) -> Progress:
        """Follow this many new rows until all are embedded or the limit of the run is reached.

        The peer loses rows, so there it also ends when nothing has changed for a while.
        """
        sizes = self._run.sizes
        quiet_s = sizes.peer_quiet_s if self._run.package.name == "peer" else math.inf
        seen = follow(self.dsn, self.rows + rows, since, sizes.limit_s, quiet_s, embedded)
        return Progress(
            [
                each._replace(rows=each.rows - self.rows, embedded=max(0, each.embedded - self.rows))
                for each in seen.samples
            ]
        )

    def cpu_s(self) -> float:
        """CPU seconds of the agent since its session began."""
        return float(self.agent("usage")["cpu_s"] - self.usage["cpu_s"])


@dataclass(frozen=True)
class Run:
    """What a scenario gets. With `warm`, one turn is stored and embedded before anything is measured.

    `conversations` are the turns of the scenario `backlog`, as (session, question, answer).
    """

    environment: Environment
    package: Package
    sizes: Sizes
    warm: bool = False
    conversations: tuple[tuple[str, str, str], ...] = ()

    @property
    def ours(self) -> bool:
        return self.package.name == "ours"

    @contextmanager
    def session(
        self,
        said: list[Turn] | list[tuple[str, str, str]] = (),  # type: ignore[assignment]
        *,
        entries: list[str] | None = None,
        dimensions: int = DIMENSIONS,
        **options: Any,
    ) -> Iterator[Session]:
        """A new agent process, ready to send these turns or to change these entries, whose session has just begun."""
        with (
            self.environment.database(self.package, dimensions) as dsn,
            self.environment.agents(self.package, dsn, **options) as [agent],
        ):
            agent("prepare", sessions=[[turn if len(turn) > 2 else ("session-0", *turn) for turn in said]])
            if entries is not None:
                agent("prepare_file", entries=entries)
            usage = agent("open")
            rows = self.first_turn(agent, dsn) if self.warm else 0
            yield Session(agent, dsn, rows, agent("usage") if self.warm else usage, self)

    def first_turn(self, agent: AgentProcess, dsn: str) -> int:
        """Send one turn and wait until its rows are embedded; returns how many there are."""
        [(question, answer)] = turns("warm", 1)
        agent("take_turn", question=question, answer=answer)
        if follow(dsn, 2, time.monotonic(), WARM_S_MAX).embedded < 2:
            raise RuntimeError(f"the first turn was not stored and embedded within {WARM_S_MAX:g} s")
        time.sleep(SETTLE_S)
        return 2
