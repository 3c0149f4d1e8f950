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
    with psycopg.connect(dsn, application_name=BENCH) as connection:
        [server, *others] = server_processes(connection) or [0]
        ticks = sum(sum(map(int, _stat(process)[11:13])) for process in others)
        # Those of connections that have ended.
        ticks += sum(map(int, _stat(server)[13:15]))
    return 1000 * ticks / os.sysconf("SC_CLK_TCK")


def server_processes(connection: psycopg.Connection) -> list[int]:
    """The process ids of a local server, its main process first; none for a remote one."""
    [own] = connection.execute("select pg_backend_pid()").fetchone() or [0]
    if not Path(f"/proc/{own}").is_dir():
        return []
    server = int(_stat(own)[1])
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [server, *(number for number in numbers if _stat(number)[1:2] == [str(server)])]


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
