"""What a local Postgres uses: CPU time and connections."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

# The application name of the benchmark's own connections, which are not counted.
BENCH = "bench"


def server_cpu_ms(dsn: str) -> float:
    """CPU milliseconds of all processes of a local server so far; 0 for a remote one."""
    with psycopg.connect(dsn) as connection:
        [own] = connection.execute("select pg_backend_pid()").fetchone() or [0]
        if not Path(f"/proc/{own}").is_dir():
            return 0.0
        server = _stat(own)[1]
        stats = {int(path.name): _stat(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit()}
    ticks = sum(sum(map(int, stat[11:13])) for stat in stats.values() if stat and stat[1] == server)
    # Those of connections that have ended.
    ticks += sum(map(int, stats[int(server)][13:15]))
    return 1000 * ticks / os.sysconf("SC_CLK_TCK")


def process_cpu_s(process: int) -> float:
    """CPU seconds of a process so far; 0 when it has ended."""
    return sum(map(int, _stat(process)[11:13])) / os.sysconf("SC_CLK_TCK")


def _stat(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@contextmanager
def connections(dsn: str) -> Iterator[list[int]]:
    """How many connections others have to the database, counted until the end of the block."""
    seen: list[int] = []
    ended = threading.Event()

    def count() -> None:
        with psycopg.connect(dsn, autocommit=True, application_name=BENCH) as connection:
            while not ended.wait(0.05):
                row = connection.execute(
                    "select count(*) from pg_stat_activity where datname = current_database()"
                    " and backend_type = 'client backend' and application_name <> %s",
                    [BENCH],
                ).fetchone()
                seen.append(row[0] if row else 0)

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    try:
        yield seen
    finally:
        ended.set()
        counter.join()
