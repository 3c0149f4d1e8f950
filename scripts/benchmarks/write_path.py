"""Scenarios of the write path without faults: hooks, bursts, a steady rate, many sessions, resources."""

from __future__ import annotations

import statistics
import time
from typing import Any

import bare_loop as plain
from environment import AgentProcess
from progress import follow, sample
from run import Figures, Run, Session
from texts import turns

ENTRY_CHARS = 150
# At least as long a model takes to answer.
ANSWER_S = 0.2
# A package that the host's package `gateway` imports, which cannot be imported without it.
MISSING = ("yaml",)
# What hermes-agent has imported when it makes a provider; it imports the packages that it shares with ours.
HOST = ("run_agent", "openai")


def hooks(run: Run) -> Figures:
    """Hook times: turns of 2 kB, then entries while those turns are stored; in a new process, entries alone.

    Both once more on a host whose package `gateway` cannot be imported. As in a host, the first hook comes after a
    question was asked and a model has answered.
    """
    count = run.sizes.hook_turns
    said, entries = turns("hook", count), [user[:ENTRY_CHARS] for user, _ in turns("entry", count // 2)]
    found: Figures = {}
    for name, options in {"": {}, "_without_gateway": {"missing_modules": MISSING}}.items():
        if options and not run.ours:
            continue
        with run.session(said, entries=entries, **options) as session:
            _answer(session)
            found |= _named(f"sync_turn{name}", session.agent("send"))
            if not options:
                found |= _named("on_memory_write_meanwhile", session.agent("change_entries", entries=entries))
        with run.session(entries=entries, **options) as session:
            _answer(session)
            found |= _named(f"on_memory_write{name}", session.agent("change_entries", entries=entries))
    return found


def _answer(session: Session) -> None:
    session.agent("recall", question="What do you know of this?")
    time.sleep(ANSWER_S)


def start(run: Run) -> Figures:
    """The calls of a host at the start of a session, in a process with the modules of a host and in a bare one."""
    [(question, _)] = turns("start", 1)
    found: Figures = {}
    for name, loaded in {"": HOST, "_bare": ()}.items():
        with run.environment.database(run.package) as dsn, run.environment.agents(run.package, dsn) as [agent]:
            for call, ms in agent("start", loaded=loaded, question=question).items():
                found[f"{call.removesuffix('_ms')}{name}_ms"] = ms
    return found


def burst(run: Run) -> Figures:
    """All turns without a pause; measured until the last row is stored and embedded."""
    offered = 2 * run.sizes.burst_turns
    with run.session(turns("burst", run.sizes.burst_turns)) as session:
        progress, _ = session.send(offered)
        return {
            "rows_offered": offered,
            "rows_lost": offered - progress.rows,
            "rows_without_vector": progress.rows - progress.embedded,
            "rows_per_s": progress.embedded / progress.took_s,
            "all_rows_s": progress.rows_s(offered),
            "first_vector_s": progress.embedded_s(1),
            "last_vector_s": progress.embedded_s(offered),
            "agent_cpu_ms_per_row": 1000 * session.cpu_s() / max(1, progress.rows),
            "samples": [[round(seen.second, 2), seen.rows, seen.embedded] for seen in progress.samples],
        }


def bare_loop(run: Run) -> Figures:
    """The turns of the burst, stored in the tables of the package by a plain loop, to compare with."""
    with run.environment.database(run.package) as dsn:
        return plain.store(dsn, run.package.name, run.environment.embed_url, run.sizes.burst_turns)


def steady(run: Run) -> Figures:
    """Turns at a rate that both packages keep up with: delay of the tables and CPU time of the agent."""
    per_s, seconds = run.sizes.steady_per_s, run.sizes.steady_s
    count = int(per_s * seconds)
    with run.session(turns("steady", count)) as session:
        progress, took = session.send(2 * count, per_s=per_s)
        behind = [
            2 * min(count, int(seen.second * per_s) + 1) - seen.embedded
            for seen in progress.samples
            if seen.second <= seconds
        ]
        return {
            "rows_lost": 2 * count - progress.rows,
            "rows_without_vector": progress.rows - progress.embedded,
            # Little's law: how many are on their way, divided by how many come in a second.
            "tables_behind_s": statistics.fmean(behind) / (2 * per_s),
            "agent_cpu_ms_per_row": 1000 * session.cpu_s() / max(1, progress.rows),
            **_named("sync_turn", took),
        }


def sessions(run: Run) -> Figures:
    """Several processes with several sessions each send turns at once, then stay idle."""
    sizes = run.sizes
    offered = 2 * sizes.processes * sizes.sessions * sizes.session_turns
    # A pool checks once in this time for connections that were idle for this time.
    settings = {"pool_idle_s": sizes.idle_s / 2} if run.ours else {}
    with (
        run.environment.database(run.package) as dsn,
        run.environment.agents(run.package, dsn, sizes.processes, **settings) as agents,
    ):
        for number, agent in enumerate(agents):
            prepared = [
                [(f"session-{place}", *turn) for turn in turns(f"process {number} {place}", sizes.session_turns)]
                for place in range(sizes.sessions)
            ]
            agent("prepare", sessions=prepared)
            agent("watch_threads")
        _all(agents, "open")
        began = time.monotonic()
        for agent in agents:
            agent.begin("send")
        progress = follow(dsn, offered, began, sizes.limit_s, sizes.limit_s if run.ours else sizes.peer_quiet_s)
        for agent in agents:
            agent.end()
        time.sleep(sizes.idle_s + 1)
        usages = _all(agents, "usage")
        return {
            "rows_lost": offered - progress.rows,
            "rows_without_vector": progress.rows - progress.embedded,
            "rows_per_s": progress.embedded / progress.took_s,
            "connections_per_process": progress.connections_max / sizes.processes,
            "connections_idle": _kept_connections(dsn),
            "threads_max": max(each["threads_max"] for each in usages),
            "rss_mb_per_process": statistics.fmean(each["rss_mb"] for each in usages),
        }


def _kept_connections(dsn: str) -> int:
    """The fewest connections in a second: those that stay open. Upkeep opens one now and then, for a moment."""
    seen = []
    for _ in range(5):
        seen.append(sample(dsn).connections)
        time.sleep(0.2)
    return min(seen)


def footprint(run: Run) -> Figures:
    """Memory, files and threads of one session, and of providers that are never shut down."""
    leaked = run.sizes.leaked if run.ours else run.sizes.leaked_peer
    kinds = ("rss_mb", "files", "threads")
    with run.environment.database(run.package) as dsn, run.environment.agents(run.package, dsn) as [agent]:
        bare = agent("usage")
        agent("open")
        warm = run.first_turn(agent, dsn)
        one = agent("usage")
        began = time.monotonic()
        agent("leak", turns=turns("leaked", leaked))
        quiet_s = run.sizes.limit_s if run.ours else run.sizes.peer_quiet_s
        progress = follow(dsn, warm + 2 * leaked, began, run.sizes.limit_s, quiet_s)
        many = agent("usage")
    return {
        "providers_leaked": leaked,
        "rows_lost": warm + 2 * leaked - progress.rows,
        "connections_max": progress.connections_max,
        **{f"one_session_{kind}": one[kind] - bare[kind] for kind in kinds},
        **{f"all_leaked_{kind}": many[kind] - one[kind] for kind in kinds},
        "kb_per_leaked": 1024 * (many["rss_mb"] - one["rss_mb"]) / leaked,
    }


def _named(hook: str, took: dict[str, float]) -> Figures:
    return {f"{hook}_{name}": value for name, value in took.items()}


def _all(agents: list[AgentProcess], method: str, **arguments: Any) -> list[Any]:
    for agent in agents:
        agent.begin(method, **arguments)
    return [agent.end() for agent in agents]
