"""Kills agents and servers at random moments."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from faultrig.agent import THEMES, Agents


def kill_agents(
    agents: Agents, homes: Sequence[Path], settings: Mapping[str, Any], kills: int, seed: int,
    themes: Sequence[str] = THEMES, still: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Start an agent in each home, kill it and start the next, until `kills` are done and `still` says no."""
    moments = random.Random(seed)
    killed = 0
    for home in homes:
        home.mkdir()
    while killed < kills or still():
        running = [
            agents.start(
                home=str(home), files=False, pause_s=0.002, seed=seed + killed + number, settings=settings, acts=10**6,
                polite=False, themes=themes,
            ) for number, home in enumerate(homes)
        ]  # fmt: skip
        time.sleep(moments.uniform(0, 0.8) + 0.7 * (killed // len(homes) % 2))
        for pid in running:
            assert agents.end(pid) == -9
            killed += 1


class Killable(Protocol):
    def kill(self) -> None: ...

    def start(self) -> None: ...


def kill_servers(servers: Sequence[Killable], kills: int, seed: int, away_s_max: float = 2.0) -> None:
    """Kill one server after the other at random moments, and start it again."""
    moments = random.Random(seed)
    for number in range(kills):
        time.sleep(moments.uniform(0.3, 2))
        server = servers[number % len(servers)]
        server.kill()
        time.sleep(moments.uniform(0, away_s_max))
        server.start()
