"""Agents and servers are killed at random moments; every event that a hook accepted is stored once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from faultrig.agent import Agents
from faultrig.citus_nodes import Nodes
from faultrig.kills import kill_agents, kill_servers
from faultrig.memory import QUICK, all_is_stored
from loopback import Endpoint

THEMES = ("ops", "dev", "home", "garden", "lab", "legal")


def settings_for(dsn: str, endpoint: Endpoint) -> dict[str, Any]:
    return {**QUICK, "dsn": dsn, "embed_url": endpoint.url, "bulk_sync_on_init": False}


@pytest.mark.parametrize(
    "kills", [10, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(600)])], ids=lambda kills: f"{kills}"
)
def test_no_kill_loses_or_repeats_an_accepted_event(
    kills: int, agents: Agents, database: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    seed = 20_000 + kills
    settings = settings_for(database, endpoint)
    homes = [tmp_path / "home"]
    kill_agents(agents, homes, settings, kills, seed)
    model = all_is_stored(homes, settings, database)
    print(f"{kills} kills: {len(model.turns)} turns, {model.changes} changes of entries, seed {seed}")
    assert len(model.turns) > kills
    assert model.changes > kills / 2


@pytest.mark.parametrize(
    ("kills", "of_nodes"),
    [(6, 3), pytest.param(50, 12, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_no_kill_of_agents_or_nodes_of_a_cluster_loses_or_repeats_an_accepted_event(
    kills: int, of_nodes: int, agents: Agents, nodes: Nodes, endpoint: Endpoint, tmp_path: Path
) -> None:
    seed = 30_000 + kills
    settings = settings_for(nodes.dsn, endpoint)
    homes = [tmp_path / "home1", tmp_path / "home2"]
    with ThreadPoolExecutor(1) as beside:
        killing = beside.submit(kill_servers, nodes.all, of_nodes, seed)
        kill_agents(agents, homes, settings, kills, seed, THEMES, lambda: not killing.done())
        killing.result()
    model = all_is_stored(homes, settings, nodes.dsn)
    print(f"{kills} kills, {of_nodes} of nodes: {len(model.turns)} turns, {model.changes} changes of entries")
    assert len(model.turns) > kills
    assert model.changes > kills / 2
