"""The scenario with a far database: 30 ms there and 30 ms back, as between continents."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from environment import HERE
from fleet_network import ORDER
from progress import follow
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from run import Figures, Run
from servers import controlled_process
from texts import prose

ANSWER_CHARS = (300, 600)
CALLS_S = 3.0


def far(run: Run) -> Figures:
    """Turns of several sessions at once, each in a theme of its own; then a new process that asks, and asks again."""
    sizes = run.sizes
    sessions = [
        [(f"session-{number}", *turn) for turn in prose(f"far {number}", sizes.far_turns, ANSWER_CHARS)]
        for number in range(sizes.far_sessions)
    ]
    offered = 2 * sizes.far_sessions * sizes.far_turns
    with run.environment.database(run.package) as near, _from_afar(near, run.environment.embed_url) as dsn:
        with run.environment.agents(run.package, dsn) as [agent]:
            agent("prepare", sessions=sessions)
            agent("open", own_themes=True)
            began = time.monotonic()
            agent.begin("send")
            quiet_s = sizes.limit_s if run.ours else sizes.peer_quiet_s
            progress = follow(near, offered, began, sizes.limit_s, quiet_s)
            agent.end()
        question = sessions[0][0][1]
        with run.environment.agents(run.package, dsn) as [agent]:
            first = agent("first_answer", theme="session-0", question=question)
            asked = [
                agent("ask", theme="session-0", questions=[question], callers=1, seconds=CALLS_S, how=how)
                for how in ("tool", *(("ambient",) if run.ours else ()))
            ]
        medians = [statistics.median(each["ms"]) for each in asked]
        return {
            "rows_lost": offered - progress.rows,
            "rows_without_vector": progress.rows - progress.embedded,
            "rows_per_s": progress.embedded / progress.took_s if progress.embedded else 0.0,
            "first_answer_ms": first,
            **dict(zip(("tool_ms", "before_turn_ms"), medians, strict=False)),
        }


@contextmanager
def _from_afar(dsn: str, embed_url: str) -> Iterator[str]:
    """The connection string of a database as a far host of the simulated fleet has it."""
    parts = conninfo_to_dict(dsn)
    socket = str(Path(str(parts["host"]), f".s.PGSQL.{parts.get('port', 5432)}"))
    host = ORDER.index("far")
    command = [sys.executable, HERE / "fleet_network.py", socket, embed_url.rpartition(":")[2], str(host + 1)]
    with controlled_process(command) as network:
        port, _ = json.loads(network.address)[host]
        yield make_conninfo(dsn, host="127.0.0.1", hostaddr="", port=port, sslmode="disable", gssencmode="disable")
