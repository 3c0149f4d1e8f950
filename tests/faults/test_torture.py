"""Agents are killed at random moments, one after the other; every event that a hook accepted is stored once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from faultrig import diary
from faultrig.agent import Agents
from faultrig.memory import QUICK, entries, settle, turns_are_those_of
from loopback import Endpoint

from hermes_memory_pgvector.runtime import acquire, release
from hermes_memory_pgvector.settings import Settings


@pytest.mark.parametrize(
    "kills", [10, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(600)])], ids=lambda kills: f"{kills}"
)
def test_no_kill_loses_or_repeats_an_accepted_event(
    kills: int, agents: Agents, database: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    seed = 20_000 + kills
    moments = random.Random(seed)
    settings = {**QUICK, "dsn": database, "embed_url": endpoint.url, "bulk_sync_on_init": False}
    home = tmp_path / "home"
    home.mkdir()
    for number in range(kills):
        pid = agents.start(
            home=str(home), files=False, pause_s=0.002, seed=seed + number, settings=settings, acts=10**6, polite=False
        )
        time.sleep(moments.uniform(0, 0.8) + 0.7 * (number % 2))
        assert agents.end(pid) == -9
    runtime = acquire(Settings(**settings), home)
    try:
        settle(runtime, database)
        model = diary.read(home / "diary")
        turns_are_those_of(model, database)
        assert model.permits(entries(database)) == ""
        print(f"{kills} kills: {len(model.turns)} turns, {model.changes} changes of entries, seed {seed}")
        assert len(model.turns) > kills
        assert model.changes > kills / 2
    finally:
        release(runtime)
