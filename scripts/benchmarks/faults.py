"""Scenarios in which something around the agent fails: Postgres, the embedder, another process, its own end."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import psycopg
from embedding_server import MODES
from progress import COMPLETE, sample
from run import Figures, Run, Session
from texts import turns

from hermes_memory_pgvector.outbox import inspection


def outage(run: Run) -> Figures:
    """Postgres is stopped in mode immediate, turns continue, and Postgres starts again."""
    server, count = run.environment.server, run.sizes.outage_turns
    if server is None:
        return {"skipped": "the server given by --dsn is not stopped"}
    with replace(run, warm=True).session(turns("outage", count)) as session:
        server.stop(mode="immediate")
        try:
            took = session.agent("send", per_s=count / run.sizes.outage_s)
        finally:
            server.ensure_running()
        progress = session.follow(2 * count, time.monotonic())
        return {
            "rows_lost": 2 * count - progress.rows,
            "rows_without_vector": progress.rows - progress.embedded,
            "drained_after_s": progress.took_s if progress.rows else None,
            **{f"sync_turn_{name}": value for name, value in took.items()},
        }


def recovery(run: Run) -> Figures:
    """The embedder fails in one way for a while, rows are written, and it is right again: seconds to the last vector.

    Each way of failing with an agent for which the embedder worked before, and with one that starts meanwhile.
    """
    cases = list(product(MODES[1:], (True, False)))
    with ThreadPoolExecutor(len(cases)) as pool:
        # They begin one after the other, so that they do not compete for the processor.
        gap_s = run.sizes.fault_gap_s
        found = pool.map(lambda numbered: _recover(run, numbered[0] * gap_s, *numbered[1]), enumerate(cases))
        names = [f"{mode}_{'later' if before else 'from_start'}_s" for mode, before in cases]
        return dict(zip(names, found, strict=True))


def _recover(run: Run, delay_s: float, mode: str, worked_before: bool) -> float | None:
    """Seconds from the end of the fault until all rows have vectors; None when the limit was reached before."""
    time.sleep(delay_s)
    count = run.sizes.fault_turns
    with run.environment.embedder() as embedder:
        if not worked_before:
            embedder.tell(mode)
        with replace(run, warm=worked_before).session(turns(mode, count), embed_url=embedder.address) as session:
            embedder.tell(mode)
            session.agent("send")
            time.sleep(run.sizes.fault_s)
            if sample(session.dsn).embedded > session.rows:
                raise RuntimeError(f"rows were embedded although the embedder was {mode}")
            embedder.tell("well")
            return session.follow(2 * count, time.monotonic()).embedded_s(2 * count)


def orphan_rows(run: Run) -> Figures:
    """Rows without vector and words come by COPY, as psql inserts them, while an agent is idle."""
    count = run.sizes.orphan_rows
    with replace(run, warm=True).session() as session:
        with psycopg.connect(session.dsn) as connection:
            columns = "agent_identity, session_id, role, content"
            with connection.cursor().copy(f"copy conversations ({columns}) from stdin".encode()) as copy:
                for question, answer in turns("orphan", count // 2):
                    copy.write_row(("bench", "copied", "user", question))
                    copy.write_row(("bench", "copied", "assistant", answer))
        progress = session.follow(count, time.monotonic(), COMPLETE)
        return {"complete_s": progress.embedded_s(count), "rows_incomplete": count - progress.embedded}


def shutdown(run: Run) -> Figures:
    """The embedder hangs, turns are sent, and the agent shuts its provider down and ends."""
    found: Figures = {}
    for name, worked_before in {"later": True, "from_start": False}.items():
        count = run.sizes.fault_turns
        with run.environment.embedder() as embedder:
            if not worked_before:
                embedder.tell("hang")
            with replace(run, warm=worked_before).session(turns(name, count), embed_url=embedder.address) as session:
                embedder.tell("hang")
                session.agent("send")
                began = time.monotonic()
                session.agent("close")
                session.agent.finish()
                ended = time.monotonic()
                found |= {f"{name}_{key}": value for key, value in _left(session, 2 * count).items()}
                found[f"{name}_shutdown_s"] = ended - began
    return found


def _left(session: Session, offered: int) -> Figures:
    """The rows that an agent stored before it ended, those that are only in its spool, and those that are nowhere."""
    stored = session.follow(0, time.monotonic()).rows
    spools = inspection.processes(session.agent.home / "pgvector" / "spool")
    waiting = 2 * inspection.total(spool.waiting for spool in spools).events
    return {
        "rows_stored": stored,
        "rows_in_spool_only": offered - stored,
        "rows_lost": max(0, offered - stored - waiting),
    }
