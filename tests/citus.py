"""A Citus cluster for tests, and the statements of the store with values for all their parameters.

`PG_TEST_CITUS` names the database of a coordinator, whose role must be a superuser. Without it the cluster of
`../shared/citus`, or of the folder `HERMES_CITUS`, is started.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from hermes_memory_pgvector.store.queries import QUERIES, for_words

ROOT = Path(__file__).resolve().parent.parent
# Of the first process of a test run; the others take later ones.
PORT = 9760


class NoCluster(Exception):
    """There is no Citus cluster. The message says why."""


@contextmanager
def cluster() -> Iterator[str]:
    """The DSN of a coordinator. Raises NoCluster."""
    if named := os.environ.get("PG_TEST_CITUS"):
        yield named
        return
    program = Path(os.environ.get("HERMES_CITUS") or ROOT.parent / "shared" / "citus") / "cluster"
    if not program.exists():
        raise NoCluster(f"there is no Citus: PG_TEST_CITUS is not set and {program} is not there")
    folder = Path(tempfile.mkdtemp(prefix="hpgcitus"))
    folder.chmod(0o755)
    try:
        port = PORT + 10 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        started = subprocess.run([program, "up", folder, str(port)], capture_output=True, text=True, timeout=300)
        if started.returncode:
            raise NoCluster(
                f"{program} up ended with {started.returncode}: {(started.stderr or started.stdout)[-500:]}"
            )
        yield started.stdout.strip().splitlines()[-1]
    finally:
        subprocess.run([program, "down", folder], capture_output=True, timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def database(coordinator: str) -> Iterator[str]:
    """The DSN of a new database on all nodes of a cluster, dropped at the end."""
    name = f"hermes_test_{uuid.uuid4().hex[:16]}"
    with psycopg.connect(coordinator, autocommit=True) as connection:
        nodes = connection.execute("select groupid, nodename, nodeport from pg_dist_node order by 1").fetchall()
    servers = [make_conninfo(coordinator, host=host, port=port) for _, host, port in nodes]
    try:
        for server in servers:
            _run(server, f"create database {name}")
            _run(make_conninfo(server, dbname=name), "create extension citus", "create extension vector")
        joined = [
            f"select citus_{'add_node' if group else 'set_coordinator_host'}('{host}', {port})"
            for group, host, port in nodes
        ]
        _run(make_conninfo(servers[0], dbname=name), *joined)
        yield make_conninfo(servers[0], dbname=name)
    finally:
        for server in servers:
            _run(server, f"drop database if exists {name} with (force)")


def _run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


# All statements, those that depend on the words of a question for two of them.
STATEMENTS = {
    name: for_words(name, 2) if "$held" in statement else statement for name, statement in sorted(QUERIES.items())
}
NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
VECTOR = str([1.0] + [0.0] * 383)
# Values of parameters by their names, and by their types.
NAMED: dict[str, Any] = {
    "theme": "one", "themes": ["one"], "source": "one", "destination": "two", "own": "one", "reserved": "^(dm|group)-",
    "words": ["red", "cars"], "limit": 5, "target": "memory", "kind": "D", "role": "user", "status": "active",
    "old": "one", "new": "two", "account": "one", "person": "dm-person-0123456789abcdef", "roles": ["user"],
    "kinds": ["D"], "turns": 2, "home": "home", "days": 30, "value": "0" * 64, "statuses": ["active"],
    "parents": [""], "metadatas": ["{}"], "candidates": 400, "sample": 2000,
}  # fmt: skip
TYPED: dict[str, Any] = {
    "text": "text", "text[]": ["text"], "bigint": 1, "bigint[]": [1], "integer": 1, "integer[]": [1], "boolean": True,
    "smallint[]": [0], "timestamp with time zone": NOW, "timestamp with time zone[]": [NOW], "uuid": uuid.UUID(int=1),
    "uuid[]": [uuid.UUID(int=1)], "jsonb": "{}", "bytea": b"x", "bytea[]": [b"x"], "halfvec": VECTOR,
    "halfvec[]": [VECTOR], "double precision": 1.0, "numeric": 1,
}  # fmt: skip
# A statement that takes other values than its names tell.
OWN: dict[str, Mapping[str, Any]] = {
    "add_entry": {"from_file": False},
    "add_erasures": {"kinds": ["turns"]},
    "claim_setting": {"name": "person_key"},
    "count_prunable": {"turns": True, "entries": True},
    "growth_by_day": {"days": [NOW]},
    "import_entry": {"replaces": ["{1}"], "rows": ['{"target": "memory", "content": "a", "home": "", "metadata": {}}']},
    "import_erasure": {"rows": ['{"key": "\\\\x00", "kind": "turns", "at": "2026-01-01"}']},
}


# What else a statement may be asked: Citus plans anew for each value.
VARIANTS: dict[str, Mapping[str, Any]] = {
    "one theme": {},
    "other values": {"role": "assistant", "from_file": True, "narrow": False, "account": "", "session": "", "text": ""},
    "two themes": {"themes": ["one", "two"]},
    "all themes": {"themes": None},
}


def parameters(connection: psycopg.Connection[Any], name: str) -> dict[str, Any]:
    """A value for each parameter of a statement, by the types that a server without Citus finds for it."""
    text = STATEMENTS[name]
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)[sb]", text)))
    numbered = re.sub(r"%\((\w+)\)[sb]", lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%")
    connection.execute(f"prepare wanted as {numbered}".encode())
    row = connection.execute(
        "select parameter_types::text[] from pg_prepared_statements where name = 'wanted'"
    ).fetchone()
    assert row is not None
    connection.execute("deallocate wanted")
    own = OWN.get(name, {})
    rows = {"rows": ["{}"] if name.startswith("import_") else 100}
    return {
        key: own.get(key, {**NAMED, **rows}.get(key, TYPED.get(kind))) for key, kind in zip(names, row[0], strict=True)
    }
