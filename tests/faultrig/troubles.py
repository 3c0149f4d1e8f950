"""Faults of the embedder, of Postgres and of agents that begin and end at random."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from faultrig.agent import Agents
from faultrig.postgres import freeze, thaw
from loopback import Endpoint

from hermes_memory_pgvector.store.embedded.server import EmbeddedServer

Mend = Callable[[], object]
AGENTS_MAX = 3


class Embedder:
    """Faults of the endpoint, one at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.kinds: dict[str, Callable[[], Mend]] = {
            "embedder away": self._away,
            "embedder hangs": self._hangs,
            "embedder answers 503": lambda: self._set("status", 503, 200),
            "embedder answers 400": lambda: self._set("status", 400, 200),
            "embedder forgets one": lambda: self._set("drop_last", True, False),
            "embedder of other dimensions": lambda: self._set("dimensions", 200, 384),
            "embedder answers NaN": lambda: self._set("not_a_number", True, False),
            "embedder is slow": lambda: self._set("delay_s", 0.4, 0.0),
        }

    def _set(self, name: str, value: object, usual: object) -> Mend:
        setattr(self._endpoint, name, value)
        return lambda: setattr(self._endpoint, name, usual)

    def _away(self) -> Mend:
        self._endpoint.close()
        return self._endpoint.reopen

    def _hangs(self) -> Mend:
        self._endpoint.released.clear()
        return self._endpoint.released.set


class Postgres:
    """Faults of the server, one at a time."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self.kinds: dict[str, Callable[[], Mend]] = {
            "Postgres stopped fast": self._stopped_fast,
            "Postgres stopped at once": self._stopped_at_once,
            "Postgres frozen": self._frozen,
        }

    def _stopped_fast(self) -> Mend:
        self._server.stop(mode="fast")
        return self._server.ensure_running

    def _stopped_at_once(self) -> Mend:
        self._server.stop(mode="immediate")
        return self._server.ensure_running

    def _frozen(self) -> Mend:
        frozen = freeze(self._server)
        return lambda: thaw(frozen)


class Troubles:
    """Starts and ends agents and causes faults, as drawn from the seed, until `mend`."""

    def __init__(self, agents: Agents, server: EmbeddedServer, endpoint: Endpoint, seed: int) -> None:
        self._agents, self._random = agents, random.Random(seed)
        self._kinds = [Embedder(endpoint).kinds, Postgres(server).kinds]
        self._running: list[tuple[float, Mend] | None] = [None, None]
        self.count: Counter[str] = Counter()

    def make(self, seconds: float, longest_s: float, plan: Callable[[int], dict[str, object]]) -> None:
        """Cause faults for `seconds`; `plan` returns the arguments of an agent by its number."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._populate(plan)
            self._trouble(longest_s)
            time.sleep(self._random.uniform(0, 0.3))
        self.mend()

    def mend(self) -> None:
        """End all faults and all agents."""
        for index in range(len(self._running)):
            self._end(index)
        for pid in list(self._agents.running):
            self._kill(pid)

    def _populate(self, plan: Callable[[int], dict[str, object]]) -> None:
        for pid in list(self._agents.running):
            if self._agents.ended(pid):
                code = self._agents.end(pid, None)
                assert code == 0, f"an agent ended with {code}"
                self.count["agents that left"] += 1
            elif self._random.random() < 0.06:
                self._kill(pid)
        while len(self._agents.running) < AGENTS_MAX:
            self.count["agents"] += 1
            self._agents.start(**plan(self.count["agents"]))

    def _kill(self, pid: int) -> None:
        self._agents.end(pid)
        self.count["agents killed"] += 1

    def _trouble(self, longest_s: float) -> None:
        for index, running in enumerate(self._running):
            if running is not None and time.monotonic() > running[0]:
                self._end(index)
            elif running is None and self._random.random() < 0.1:
                self._begin(index, self._random.uniform(0.1, longest_s))
        if self._random.random() < 0.01:
            self.count["all at once"] += 1
            for index in range(len(self._running)):
                if self._running[index] is None:
                    self._begin(index, longest_s)
            for pid in list(self._agents.running):
                self._kill(pid)

    def _begin(self, index: int, seconds: float) -> None:
        name = self._random.choice(sorted(self._kinds[index]))
        self.count[name] += 1
        self._running[index] = time.monotonic() + seconds, self._kinds[index][name]()

    def _end(self, index: int) -> None:
        running, self._running[index] = self._running[index], None
        if running is not None:
            with suppress(ProcessLookupError):
                running[1]()
