"""The work that is measured, one function each: what a package made of it, as numbers with their units."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bareloop import store
from progress import follow, look
from stage import Agent, Package, Stage

Figures = dict[str, Any]
SETTLE_S = 1.0


@dataclass(frozen=True)
class Sizes:
    """How much of everything; `scaled` makes less of it."""

    hook_turns: int = 1000
    hook_runs: int = 3
    burst_turns: int = 2000
    steady_per_s: float = 10.0
    steady_s: float = 30.0
    processes: int = 8
    sessions: int = 8
    fleet_turns: int = 25
    idle_s: float = 60.0
    outage_turns: int = 200
    outage_s: float = 10.0
    leaked: int = 1000
    leaked_peer: int = 30
    quiet_s: float = 6.0

    @classmethod
    def scaled(cls, share: float) -> Sizes:
        """A share of the work, with so much of each kind left that it means something; idle times are shortened.

        Hooks are called as often as ever, which takes no time: of fewer calls the slowest hundredth says little.
        """
        full = cls()
        if share >= 1:
            return full

        def part(number: float, least: int) -> int:
            return max(least, int(number * share))

        return cls(
            burst_turns=part(full.burst_turns, 40), steady_s=part(30, 2),
            processes=part(full.processes, 2), sessions=part(full.sessions, 2), fleet_turns=part(full.fleet_turns, 5),
            hook_runs=part(full.hook_runs, 1), idle_s=part(full.idle_s, 3), outage_turns=part(full.outage_turns, 20),
            outage_s=part(full.outage_s, 1), leaked=part(full.leaked, 20), leaked_peer=part(full.leaked_peer, 3),
            quiet_s=max(3.0, full.quiet_s * share),
        )  # fmt: skip


def hooks(stage: Stage, package: Package, sizes: Sizes) -> Figures:
    """One hook thread in a burst of turns of 2 kB, of entries while those turns are stored, and of entries alone."""
    with _warm(stage, package, sizes) as (agent, _, _):
        agent("learn", label="hook", count=sizes.hook_turns)
        found = {"sync_turn": agent("say"), "on_memory_write_meanwhile": agent("remember", count=sizes.hook_turns)}
    with _warm(stage, package, sizes) as (agent, _, _):
        return {**found, "on_memory_write": agent("remember", count=sizes.hook_turns)}


def burst(stage: Stage, package: Package, sizes: Sizes) -> Figures:
    """All turns at once, until everything that will ever be stored is stored and embedded."""
    with _warm(stage, package, sizes) as (agent, dsn, warm):
        agent("learn", label="burst", count=sizes.burst_turns)
        before, offered = agent("vitals"), 2 * sizes.burst_turns
        began = time.monotonic()
        agent.begin("say")
        progress = follow(dsn, warm + offered, began, sizes.quiet_s)
        agent.end()
        stored, embedded = progress.rows - warm, progress.embedded - warm
        cpu_s = agent("vitals")["cpu_s"] - before["cpu_s"]
        return {
            "rows_offered": offered,
            "rows_lost": offered - stored,
            "rows_without_vector": stored - embedded,
            "seconds": progress.took_s,
            "rows_per_s": embedded / progress.took_s,
            "agent_cpu_ms_per_row": 1000 * cpu_s / max(1, stored),
            "samples": [[round(seen.second, 2), seen.rows - warm, seen.embedded - warm] for seen in progress.samples],
        }


def bare_loop(stage: Stage, package: Package, sizes: Sizes) -> Figures:
    """The turns of the burst, stored by a plain loop in the tables of the package: the yardstick."""
    with stage.database(package) as dsn:
        return store(dsn, package.name, stage.embed_url, sizes.burst_turns)


def steady(stage: Stage, package: Package, sizes: Sizes) -> Figures:
    """Turns at a pace that both packages can follow: how far behind the tables are, and what it costs the agent."""
    turns = int(sizes.steady_per_s * sizes.steady_s)
    with _warm(stage, package, sizes) as (agent, dsn, warm):
        agent("learn", label="steady", count=turns)
        before = agent("vitals")
        began = time.monotonic()
        agent.begin("say", per_s=sizes.steady_per_s)
        progress = follow(dsn, warm + 2 * turns, began, sizes.quiet_s)
        took = agent.end()
        stored, embedded = progress.rows - warm, progress.embedded - warm
        behind = [
            2 * min(turns, int(seen.second * sizes.steady_per_s) + 1) - (seen.embedded - warm)
            for seen in progress.samples
            if seen.second <= sizes.steady_s
        ]
        return {
            "rows_lost": 2 * turns - stored,
            "rows_without_vector": stored - embedded,
            # Little's law: how many are on their way, divided by how many come in a second.
            "seconds_behind": statistics.fmean(behind) / (2 * sizes.steady_per_s),
            "agent_cpu_ms_per_row": 1000 * (agent("vitals")["cpu_s"] - before["cpu_s"]) / max(1, stored),
            **took,
        }


def fleet(stage: Stage, package: Package, sizes: Sizes) -> Figures:
    """Several processes with several sessions each, all speaking at once; then nobody speaks for a while."""
    offered = 2 * sizes.processes * sizes.sessions * sizes.fleet_turns
    with (
        stage.database(package) as dsn,
        # A pool closes what was idle for this time at a check it makes as often.
        stage.agents(package, dsn, sizes.processes, **_only_ours(package, pool_idle_s=sizes.idle_s / 2)) as agents,
    ):
        for agent in agents:
            agent("watch")
        _all(agents, "open", sessions=sizes.sessions)
        for number, agent in enumerate(agents):
            agent("learn", label=f"process {number}", count=sizes.fleet_turns)
        began = time.monotonic()
        for agent in agents:
            agent.begin("say")
        progress = follow(dsn, offered, began, sizes.quiet_s)
        for agent in agents:
            agent.end()
        time.sleep(sizes.idle_s + 1)
        vitals = _all(agents, "vitals")
        return {
            "rows_lost": offered - progress.rows,
            "rows_without_vector": progress.rows - progress.embedded,
            "rows_per_s": progress.embedded / progress.took_s,
            "connections_per_process": progress.connections_max / sizes.processes,
            "connections_idle": look(dsn).connections,
            "idle_s": sizes.idle_s,
            "threads_max": max(each["threads_max"] for each in vitals),
            "rss_mb_per_process": statistics.fmean(each["rss_mb"] for each in vitals),
        }


def outage(stage: Stage, package: Package, sizes: Sizes) -> Figures:
    """Postgres is stopped at once, turns go on, Postgres starts again."""
    server, offered = stage.server, 2 * sizes.outage_turns
    if server is None:
        return {"skipped": "a Postgres of somebody else is not stopped"}
    with _warm(stage, package, sizes) as (agent, dsn, warm):
        agent("learn", label="outage", count=sizes.outage_turns)
        server.stop(mode="immediate")
        try:
            took = agent("say", per_s=sizes.outage_turns / sizes.outage_s)
        finally:
            server.ensure_running()
        progress = follow(dsn, warm + offered, time.monotonic(), sizes.quiet_s + sizes.outage_s)
        return {
            "rows_lost": offered - (progress.rows - warm),
            "rows_without_vector": progress.rows - progress.embedded,
            "outage_s": sizes.outage_s,
            "drained_after_s": progress.took_s if progress.rows > warm else None,
            **took,
        }


def footprint(stage: Stage, package: Package, sizes: Sizes) -> Figures:
    """What one session costs a process, and what each provider costs that is never shut down."""
    leaked = sizes.leaked if package.name == "ours" else sizes.leaked_peer
    with stage.database(package) as dsn, stage.agents(package, dsn) as [agent]:
        bare = agent("vitals")
        warm = _first_turn(agent, dsn, sizes)
        one = agent("vitals")
        began = time.monotonic()
        agent("leak", count=leaked)
        progress = follow(dsn, warm + 2 * leaked, began, sizes.quiet_s)
        many = agent("vitals")
        kinds = ("rss_mb", "files", "threads")
        return {
            "providers_leaked": leaked,
            "rows_lost": warm + 2 * leaked - progress.rows,
            "connections_max": progress.connections_max,
            "one_session": {kind: one[kind] - bare[kind] for kind in kinds},
            "all_leaked": {kind: many[kind] - one[kind] for kind in kinds},
            "kb_per_leaked": 1024 * (many["rss_mb"] - one["rss_mb"]) / leaked,
        }


@contextmanager
def _warm(stage: Stage, package: Package, sizes: Sizes) -> Iterator[tuple[Agent, str, int]]:
    """An agent with one session that is loaded, connected and calibrated, its database, and the rows in it."""
    with stage.database(package) as dsn, stage.agents(package, dsn) as [agent]:
        yield agent, dsn, _first_turn(agent, dsn, sizes)


def _first_turn(agent: Agent, dsn: str, sizes: Sizes) -> int:
    agent("open", sessions=1)
    agent("learn", label="warm", count=1)
    agent("say")
    if follow(dsn, 2, time.monotonic(), max(10.0, sizes.quiet_s), 30.0).embedded < 2:
        raise RuntimeError("the first turn was not stored and embedded within 10 s")
    time.sleep(SETTLE_S)
    return 2


def _all(agents: list[Agent], method: str, **arguments: Any) -> list[Any]:
    for agent in agents:
        agent.begin(method, **arguments)
    return [agent.end() for agent in agents]


def _only_ours(package: Package, **settings: Any) -> dict[str, Any]:
    return settings if package.name == "ours" else {}


SCENARIOS: dict[str, Callable[[Stage, Package, Sizes], Figures]] = {
    function.__name__: function for function in (hooks, burst, bare_loop, steady, fleet, outage, footprint)
}
