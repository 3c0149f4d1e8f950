"""The scenarios, one function each. Each runs one package and returns its figures; their names hold the units."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bare_loop import store
from environment import AgentProcess, Environment, Package
from progress import follow, sample

Figures = dict[str, Any]
SETTLE_S = 1.0


@dataclass(frozen=True)
class Sizes:
    """The amount of work of each scenario."""

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
        """A share of the work, from 0 to 1, with a minimum for each kind. Idle times are shortened, too.

        The number of hook calls stays: they are fast, and a 99th percentile needs many of them.
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


def hooks(environment: Environment, package: Package, sizes: Sizes) -> Figures:
    """Hook times: turns of 2 kB, then entries while those turns are stored; in a new process, entries alone."""
    with _warm(environment, package, sizes) as (agent, _, _):
        agent("prepare", label="hook", count=sizes.hook_turns)
        found = {
            "sync_turn": agent("send"),
            "on_memory_write_meanwhile": agent("change_entries", count=sizes.hook_turns),
        }
    with _warm(environment, package, sizes) as (agent, _, _):
        return {**found, "on_memory_write": agent("change_entries", count=sizes.hook_turns)}


def burst(environment: Environment, package: Package, sizes: Sizes) -> Figures:
    """All turns without a pause; measured until the last row is stored and embedded."""
    with _warm(environment, package, sizes) as (agent, dsn, warm):
        agent("prepare", label="burst", count=sizes.burst_turns)
        before, offered = agent("usage"), 2 * sizes.burst_turns
        began = time.monotonic()
        agent.begin("send")
        progress = follow(dsn, warm + offered, began, sizes.quiet_s)
        agent.end()
        stored, embedded = progress.rows - warm, progress.embedded - warm
        cpu_s = agent("usage")["cpu_s"] - before["cpu_s"]
        return {
            "rows_offered": offered,
            "rows_lost": offered - stored,
            "rows_without_vector": stored - embedded,
            "seconds": progress.took_s,
            "rows_per_s": embedded / progress.took_s,
            "agent_cpu_ms_per_row": 1000 * cpu_s / max(1, stored),
            "samples": [[round(seen.second, 2), seen.rows - warm, seen.embedded - warm] for seen in progress.samples],
        }


def bare_loop(environment: Environment, package: Package, sizes: Sizes) -> Figures:
    """The turns of the burst, stored in the tables of the package by a plain loop, to compare with."""
    with environment.database(package) as dsn:
        return store(dsn, package.name, environment.embed_url, sizes.burst_turns)


def steady(environment: Environment, package: Package, sizes: Sizes) -> Figures:
    """Turns at a rate that both packages keep up with: delay of the tables and CPU time of the agent."""
    turns = int(sizes.steady_per_s * sizes.steady_s)
    with _warm(environment, package, sizes) as (agent, dsn, warm):
        agent("prepare", label="steady", count=turns)
        before = agent("usage")
        began = time.monotonic()
        agent.begin("send", per_s=sizes.steady_per_s)
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
            "agent_cpu_ms_per_row": 1000 * (agent("usage")["cpu_s"] - before["cpu_s"]) / max(1, stored),
            **took,
        }


def fleet(environment: Environment, package: Package, sizes: Sizes) -> Figures:
    """Several processes with several sessions each send turns at once, then stay idle."""
    offered = 2 * sizes.processes * sizes.sessions * sizes.fleet_turns
    with (
        environment.database(package) as dsn,
        # A pool checks once in this time for connections that were idle for this time.
        environment.agents(
            package, dsn, sizes.processes, **_only_ours(package, pool_idle_s=sizes.idle_s / 2)
        ) as agents,
    ):
        for agent in agents:
            agent("watch_threads")
        _all(agents, "open", sessions=sizes.sessions)
        for number, agent in enumerate(agents):
            agent("prepare", label=f"process {number}", count=sizes.fleet_turns)
        began = time.monotonic()
        for agent in agents:
            agent.begin("send")
        progress = follow(dsn, offered, began, sizes.quiet_s)
        for agent in agents:
            agent.end()
        time.sleep(sizes.idle_s + 1)
        usages = _all(agents, "usage")
        return {
            "rows_lost": offered - progress.rows,
            "rows_without_vector": progress.rows - progress.embedded,
            "rows_per_s": progress.embedded / progress.took_s,
            "connections_per_process": progress.connections_max / sizes.processes,
            "connections_idle": sample(dsn).connections,
            "idle_s": sizes.idle_s,
            "threads_max": max(each["threads_max"] for each in usages),
            "rss_mb_per_process": statistics.fmean(each["rss_mb"] for each in usages),
        }


def outage(environment: Environment, package: Package, sizes: Sizes) -> Figures:
    """Postgres is stopped in mode immediate, turns continue, and Postgres starts again."""
    server, offered = environment.server, 2 * sizes.outage_turns
    if server is None:
        return {"skipped": "the server given by --dsn is not stopped"}
    with _warm(environment, package, sizes) as (agent, dsn, warm):
        agent("prepare", label="outage", count=sizes.outage_turns)
        server.stop(mode="immediate")
        try:
            took = agent("send", per_s=sizes.outage_turns / sizes.outage_s)
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


def footprint(environment: Environment, package: Package, sizes: Sizes) -> Figures:
    """Memory, files and threads of one session, and of providers that are never shut down."""
    leaked = sizes.leaked if package.name == "ours" else sizes.leaked_peer
    with environment.database(package) as dsn, environment.agents(package, dsn) as [agent]:
        bare = agent("usage")
        warm = _first_turn(agent, dsn, sizes)
        one = agent("usage")
        began = time.monotonic()
        agent("leak", count=leaked)
        progress = follow(dsn, warm + 2 * leaked, began, sizes.quiet_s)
        many = agent("usage")
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
def _warm(environment: Environment, package: Package, sizes: Sizes) -> Iterator[tuple[AgentProcess, str, int]]:
    """An agent process with one session that is connected and calibrated, its DSN, and the number of its rows."""
    with environment.database(package) as dsn, environment.agents(package, dsn) as [agent]:
        yield agent, dsn, _first_turn(agent, dsn, sizes)


def _first_turn(agent: AgentProcess, dsn: str, sizes: Sizes) -> int:
    agent("open", sessions=1)
    agent("prepare", label="warm", count=1)
    agent("send")
    if follow(dsn, 2, time.monotonic(), max(10.0, sizes.quiet_s), 30.0).embedded < 2:
        raise RuntimeError("the first turn was not stored and embedded within 10 s")
    time.sleep(SETTLE_S)
    return 2


def _all(agents: list[AgentProcess], method: str, **arguments: Any) -> list[Any]:
    for agent in agents:
        agent.begin(method, **arguments)
    return [agent.end() for agent in agents]


def _only_ours(package: Package, **settings: Any) -> dict[str, Any]:
    return settings if package.name == "ours" else {}


SCENARIOS: dict[str, Callable[[Environment, Package, Sizes], Figures]] = {
    function.__name__: function for function in (hooks, burst, bare_loop, steady, fleet, outage, footprint)
}
