"""A Citus cluster for tests, and the statements of the store with values for all their parameters.

`PG_TEST_CITUS` names the database of a coordinator, whose role must be a superuser. Without it the cluster of
`../shared/citus`, or of the folder `HERMES_CITUS`, is started.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from fast_folder import fast_folder
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from hermes_memory_pgvector.store.queries import QUERIES, for_words

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(os.environ.get("HERMES_CITUS") or ROOT.parent / "shared" / "citus") / "cluster"
# A daemon of a node may be on its way into the database.
DROPS_MAX, JOINS_MAX = 5, 5


class NoCluster(Exception):
    """There is no Citus cluster. The message says why."""


def is_at_hand() -> bool:
    """Whether a cluster is named, or can be started."""
    return bool(os.environ.get("PG_TEST_CITUS")) or PROGRAM.exists()


@contextmanager
def cluster() -> Iterator[str]:
    """The DSN of a coordinator. Raises NoCluster."""
    if named := os.environ.get("PG_TEST_CITUS"):
        yield named
        return
    with own_cluster() as (coordinator, _):
        yield coordinator


@contextmanager
def own_cluster() -> Iterator[tuple[str, Path]]:
    """A cluster for the caller alone: the DSN of its coordinator, and the folder of `node0`, which is the coordinator,
    `node1` and `node2`. Raises NoCluster."""
    if not PROGRAM.exists():
        raise NoCluster(f"there is no Citus: {PROGRAM} is not there")
    folder = Path(tempfile.mkdtemp(prefix="hpgcitus", dir=fast_folder()))
    folder.chmod(0o755)
    try:
        started = subprocess.run(
            [PROGRAM, "up", folder, str(_free_ports())], capture_output=True, text=True, timeout=300
        )
        if started.returncode:
            raise NoCluster(
                f"{PROGRAM} up ended with {started.returncode}: {(started.stderr or started.stdout)[-500:]}"
            )
        coordinator = started.stdout.strip().splitlines()[-1]
        # Few shards, since tests have few themes and each shard is a table with its indexes.
        run(coordinator, "alter system set citus.shard_count = 8", "select pg_reload_conf()")
        yield coordinator, folder
    finally:
        subprocess.run([PROGRAM, "down", folder], capture_output=True, timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports() -> int:
    """The first of three ports that are free."""
    while True:
        first = secrets.choice(range(20_000, 30_000, 10))
        with suppress(OSError), ExitStack() as sockets:
            for port in range(first, first + 3):
                sockets.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


@contextmanager
def database(coordinator: str) -> Iterator[str]:
    """The DSN of a new database on all nodes of a cluster, dropped at the end."""
    name = f"hermes_test_{uuid.uuid4().hex[:16]}"
    nodes = servers(coordinator)
    joined = [
        f"select citus_{'add_node' if place else 'set_coordinator_host'}('{node['host']}', {node['port']})"
        for place, node in enumerate(map(conninfo_to_dict, nodes))
    ]
    try:
        for node in nodes:
            run(node, f"create database {name}")
            run(make_conninfo(node, dbname=name), "create extension citus", "create extension vector")
        _joined(make_conninfo(nodes[0], dbname=name), joined)
        yield make_conninfo(nodes[0], dbname=name)
    finally:
        drop(nodes, name)


def _joined(coordinator: str, statements: Sequence[str]) -> None:
    """Add the nodes to a coordinator. While others do the same, a connection of Citus can fail."""
    for left in reversed(range(JOINS_MAX)):
        try:
            run(coordinator, *statements)
            return
        except psycopg.errors.InternalError_:
            if not left:
                raise
            time.sleep(1)


def copy(nodes: Sequence[str], template: str, name: str) -> None:
    """Create a database on all nodes from another one, to which nobody can connect any more."""
    _on_all(nodes, *_left_alone(template), f"create database {name} template {template} strategy file_copy")


def drop(nodes: Sequence[str], name: str) -> None:
    """Drop a database on all nodes and end its connections."""
    _on_all(nodes, *_left_alone(name))
    for left in reversed(range(DROPS_MAX)):
        try:
            _on_all(nodes, f"drop database if exists {name} with (force)")
            break
        except psycopg.errors.ObjectInUse:
            if not left:
                raise
            for node in nodes:
                _roll_back(node, name)


def _roll_back(node: str, name: str) -> None:
    """End the parts of transactions of several nodes that a killed process has left in a database."""
    with psycopg.connect(node, autocommit=True) as connection:
        found = connection.execute("select gid from pg_prepared_xacts where database = %s", [name]).fetchall()
    if found:
        run(node, f"alter database {name} allow_connections true")
        run(make_conninfo(node, dbname=name), *(f"rollback prepared '{gid}'" for (gid,) in found))
        run(node, *_left_alone(name))


def _on_all(nodes: Sequence[str], *statements: str) -> None:
    with ThreadPoolExecutor(len(nodes)) as threads:
        list(threads.map(lambda node: run(node, *statements), nodes))


def _left_alone(name: str) -> tuple[str, str]:
    """Statements after which nobody is connected to a database, also none of the daemons of the nodes."""
    return (
        f"alter database {name} allow_connections false",
        f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'",
    )


def servers(coordinator: str) -> list[str]:
    """The DSN of each node, that of the coordinator first."""
    with psycopg.connect(coordinator, autocommit=True) as connection:
        found = connection.execute("select nodename, nodeport from pg_dist_node order by groupid").fetchall()
    return [make_conninfo(coordinator, host=host, port=port) for host, port in found]


def run(dsn: str, *statements: str) -> None:
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
    rows = {"rows": ["{}"] if name.startswith(("import_", "turns_there")) else 100}
    return {
        key: own.get(key, {**NAMED, **rows}.get(key, TYPED.get(kind))) for key, kind in zip(names, row[0], strict=True)
    }
