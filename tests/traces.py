"""What somebody beside the tables may look at: the titles of processes and the statements of the server, and dumps."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

import psycopg


def titles(dsn: str, *processes: int) -> dict[str, str]:
    """What the server shows of its connections, and the titles of these processes and of its own, by what it is."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        seen = connection.execute("select pid, application_name, query from pg_stat_activity where datname is not null")
        activity = seen.fetchall()
    found = {f"activity {pid}": f"{name} {query}" for pid, name, query in activity}
    for pid in (*(row[0] for row in activity), *processes):
        # The process, or one of its threads, may end meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            for title in (Path(f"/proc/{pid}/cmdline"), *Path(f"/proc/{pid}/task").glob("*/comm")):
                with suppress(FileNotFoundError, ProcessLookupError):
                    found[str(title)] = title.read_bytes().decode(errors="replace")
    return found


def dump(dsn: str, programs: Path | None) -> str:
    """A dump of the database, with what people said; empty where the programs of the server are not here."""
    if programs is None:
        return ""
    command = [programs / "pg_dump", "--dbname", dsn]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
