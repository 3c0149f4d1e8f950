"""Shards of a Citus cluster are moved and split while agents write and recall."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
from faultrig.agent import Agents
from faultrig.citus_nodes import Nodes
from faultrig.memory import QUICK, all_is_stored
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.model import RecallRequest, Scope, TurnTaken
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings

THEMES = ("ops", "dev", "home", "garden")


def place(connection: psycopg.Connection[Any], theme: str) -> tuple[int, int]:
    """The number of the shard of a theme's turns, and of the node that holds it."""
    row = connection.execute(
        "select shard.shardid, node.nodeid from pg_dist_placement shard join pg_dist_node node using (groupid)"
        " where shard.shardid = get_shard_id_for_distribution_column('conversations', %s::text)",
        [theme],
    ).fetchone()
    assert row is not None
    return row


def move(connection: psycopg.Connection[Any], theme: str, mode: str) -> float:
    """Move the rows of a theme to the other worker; returns the seconds that it took."""
    began = time.monotonic()
    shard, source = place(connection, theme)
    workers = connection.execute("select nodeid from pg_dist_node where shouldhaveshards").fetchall()
    (target,) = (worker for (worker,) in workers if worker != source)
    connection.execute("select citus_move_shard_placement(%s, %s, %s, %s)", [shard, source, target, mode])
    assert place(connection, theme) == (shard, target)
    return time.monotonic() - began


def isolate(connection: psycopg.Connection[Any], theme: str, mode: str) -> None:
    """Give a theme a shard of its own."""
    shard, node = place(connection, theme)
    connection.execute(
        "select isolate_tenant_to_new_shard('conversations', %s::text, 'CASCADE', shard_transfer_mode => %s)",
        [theme, mode],
    )
    alone, its_node = place(connection, theme)
    assert alone != shard
    assert its_node == node


def recalled(runtime: Runtime, theme: str) -> tuple[str, ...]:
    """Ask for the turn that each theme has; returns why the answer is degraded, if it is."""
    request = RecallRequest(query="where is the lamp", scope=Scope(theme, (theme,)), limit=10, budget_s=2)
    found = runtime.recall("turns", request)
    assert found.degraded or any(f"the lamp of {theme}" in hit.content for hit in found.texts)
    return found.degraded


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["block_writes", "auto"])
def test_shards_that_move_while_agents_write_lose_nothing_and_are_found_afterwards(
    mode: str, nodes: Nodes, agents: Agents, endpoint: Endpoint, tmp_path: Path
) -> None:
    if mode == "auto":
        for node in nodes.all:
            node.set(wal_level="logical", output_plugin_libraries="pgoutput, citus")
    settings = {**QUICK, "dsn": nodes.dsn, "embed_url": endpoint.url, "bulk_sync_on_init": False}
    homes = [tmp_path / f"home{number}" for number in range(2)]
    for number, home in enumerate(homes):
        home.mkdir()
        agents.start(
            home=str(home), files=False, pause_s=0.04, seed=number, settings=settings, acts=10**6, polite=False,
            themes=THEMES,
        )  # fmt: skip
    asking, moved = acquire(Settings(**{**settings, "pool_idle_s": 600}), tmp_path / "asking"), Event()
    answers: Counter[str] = Counter()
    took_s: list[float] = []

    def ask() -> None:
        for theme in cycle(THEMES):
            answers["; ".join(recalled(asking, theme)) or "whole"] += 1
            if moved.is_set():
                return

    try:
        for theme in THEMES:
            assert asking.accept(
                TurnTaken(theme=theme, session_id="s", user="the lamp?", assistant=f"the lamp of {theme}")
            )
        assert asking.writer.flush(20)
        for theme in THEMES:
            wait_for(lambda theme=theme: not recalled(asking, theme), 20)
        with ThreadPoolExecutor(1) as beside, psycopg.connect(nodes.dsn, autocommit=True) as connection:
            being_asked = beside.submit(ask)
            try:
                for theme in THEMES:
                    took_s.append(move(connection, theme, mode))
                    wait_for(lambda theme=theme: not recalled(asking, theme), 20)
                isolate(connection, THEMES[0], mode)
                move(connection, THEMES[0], mode)
            finally:
                moved.set()
            being_asked.result(20)
        for theme in THEMES:
            wait_for(lambda theme=theme: not recalled(asking, theme), 20)
            assert asking.accept(TurnTaken(theme=theme, session_id="s", user="it?", assistant=f"moved with {theme}"))
        assert asking.writer.flush(20)
    finally:
        release(asking)
    for pid in list(agents.running):
        agents.end(pid)
    model = all_is_stored(homes, settings, nodes.dsn)
    print(
        f"{mode}: {len(model.turns)} turns, {model.changes} changes of entries, recalls: {dict(answers)},"
        f" a move took {max(took_s):.1f} s"
    )
    assert len(model.turns) > 20
