"""The second column of vectors, while another model takes over: made, indexed, and put in the place of the first one.

Rows get `embedding_next`, and chunks tables of their own, whose names end in `_next`, too. Agents do not know them.
Their definitions are read from the catalogue, so they are those of the first column. For an administrator's connection.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import LiteralString, NamedTuple

import psycopg

from pgvector.psycopg import register_vector

from ..errors import DatabaseUnavailable
from .queries import KINDS, QUERIES, SECOND, query
from .schema import migrations
from .schema.preflight import Connection, fetch, set_timeouts, try_lock
from .schema.verification import Origin
from .theme_index import ADVISORY_LOCK as TUNE_LOCK

SETTING = "reembed"
# A tuple of a btree holds no longer vectors, and a page no longer ones of both models.
EXACT_DIMENSIONS_MAX, PLAIN_DIMENSIONS_MAX = 768, 3072
# Recalls wait behind a lock that is waited for, so the wait is short and repeated. A longer one ends an autovacuum.
LOCK_MS, LOCK_MS_LATER, LATER_S, LOCK_S_MAX, PAUSE_S = 200, 1500, 60.0, 600.0, 0.5
# How long the server may take to notice that a killed command has ended.
ENDED_S = 10.0
ROW_TABLES = tuple(kind["table"] for kind in KINDS.values())
PIECE_TABLES = tuple(kind["pieces"] for kind in KINDS.values())
# Of vectors that are short enough; a database that has longer ones lacks them.
_EXACT = {
    "memory_entries": "(agent_identity) INCLUDE (id, target, expires_at, embedding) WHERE embedding IS NOT NULL",
    "conversations": "(agent_identity) INCLUDE (id, session_id, ts, role, embedding) WHERE embedding IS NOT NULL",
    "facts": "(agent_identity) INCLUDE (id, session_id, scope, written_at, embedding)"
    " WHERE embedding IS NOT NULL AND status IN ('active', 'cold')",
}


class Progress(NamedTuple):
    """The rows of all kinds, and those that lack a vector."""

    rows: int
    lacking: int


@dataclass(frozen=True, slots=True)
class Index:
    """An index of the second column: its name, the one that it will have, and whether it is there and valid."""

    name: str
    final: str
    definition: str
    built: bool


def begun(connection: Connection) -> Origin | None:
    """The model for which the second column is being filled; None when there is no second column."""
    found = fetch(connection, "SELECT value FROM hermes_pgvector_settings WHERE name = %s", [SETTING])
    return Origin(**json.loads(found[0])) if found else None


def lock(connection: Connection) -> None:
    """Keep other commands from changing tables, until the connection is closed. Raises DatabaseUnavailable."""
    deadline = time.monotonic() + ENDED_S
    for key in (migrations.ADVISORY_LOCK, TUNE_LOCK):
        while not try_lock(connection, key):
            if time.monotonic() > deadline:
                raise DatabaseUnavailable("a migrate, tune or reembed runs on this database; run this again afterwards")
            time.sleep(PAUSE_S)
    set_timeouts(connection)
    # When this process is killed, the server ends what it was doing.
    _run(connection, "SET client_connection_check_interval = '1s'")
    register_vector(connection)


def begin(connection: Connection, origin: Origin) -> None:
    """Make the second column and its tables, for vectors of this model. Raises DatabaseUnavailable."""

    def change() -> None:
        (held,) = connection.execute(QUERIES["held_vectors"])
        kind = f"halfvec({origin.dimensions})"
        storage = "PLAIN" if held["dimensions"] + origin.dimensions <= PLAIN_DIMENSIONS_MAX else "EXTERNAL"
        for table in ROW_TABLES:
            _run(connection, f"ALTER TABLE {table} ADD COLUMN embedding{SECOND} {kind}")
            _run(connection, f"ALTER TABLE {table} ALTER COLUMN embedding{SECOND} SET STORAGE {storage}")
        for table in PIECE_TABLES:
            _copy_table(connection, table, kind, "PLAIN" if origin.dimensions <= PLAIN_DIMENSIONS_MAX else "EXTERNAL")
        connection.execute(
            "INSERT INTO hermes_pgvector_settings (name, value) VALUES (%s, %s)",
            [SETTING, json.dumps(origin._asdict())],
        )

    _briefly(connection, change)


def abandon(connection: Connection) -> None:
    """Drop the second column with what belongs to it. Raises DatabaseUnavailable."""

    def change() -> None:
        for table in PIECE_TABLES:
            _run(connection, f"DROP TABLE IF EXISTS {table}{SECOND}")
        for table in ROW_TABLES:
            _run(connection, f"ALTER TABLE {table} DROP COLUMN IF EXISTS embedding{SECOND}")
        connection.execute("DELETE FROM hermes_pgvector_settings WHERE name = %s", [SETTING])

    _briefly(connection, change)


def indexes(connection: Connection, origin: Origin) -> list[Index]:
    """The indexes that the second column needs; first those that find rows without a vector."""
    found: list[Index] = []
    for table in (*ROW_TABLES, *PIECE_TABLES):
        definitions = {row["name"]: row["definition"] for row in connection.execute(_INDEXES, {"table": table})}
        definitions = {
            name: text for name, text in definitions.items() if not re.search(r"INCLUDE \(.*\bembedding\b", text)
        }
        if table in _EXACT and origin.dimensions <= EXACT_DIMENSIONS_MAX:
            definitions[f"{table}_exact"] = f"CREATE INDEX {table}_exact ON {table} USING btree {_EXACT[table]}"
        for name, text in definitions.items():
            body = text.partition(" USING ")[2]
            target = table if table in ROW_TABLES else f"{table}{SECOND}"
            statement = f"CREATE INDEX CONCURRENTLY {name}{SECOND} ON {target} USING {_renamed(body)}"
            valid = fetch(
                connection, "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", [name + SECOND]
            )
            found.append(Index(f"{name}{SECOND}", name, statement, bool(valid and valid[0])))
    return sorted(found, key=lambda index: ("unembedded" not in index.name, index.name))


def build(connection: Connection, index: Index) -> None:
    """Build an index while others read and write; one whose build was interrupted is built again."""
    _run(connection, f"DROP INDEX CONCURRENTLY IF EXISTS {index.name}")
    _run(connection, index.definition)


def progress(connection: Connection, *, second: bool) -> Progress:
    """The rows that are recalled, and how many of them lack a vector in one of the columns."""
    (totals,) = connection.execute(query("row_totals", second=second))
    return Progress(sum(totals[kind] for kind in KINDS), sum(totals[f"{kind}_without_vector"] for kind in KINDS))


def switch(connection: Connection, origin: Origin) -> None:
    """Put the second column in the place of the first one, which is dropped, in one short transaction.

    Who compares or stores vectors reads the settings first, in the same transaction, and keeps their lock: no
    transaction sees both models. Raises DatabaseUnavailable when the locks cannot be had, and SchemaNotApplied when
    something else depends on the first column.
    """
    made = [index for index in indexes(connection, origin) if index.built]
    # The new tables are not in use.
    tables = [*ROW_TABLES, *PIECE_TABLES]

    def change() -> None:
        _run(connection, f"LOCK TABLE hermes_pgvector_settings, {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        for table in ROW_TABLES:
            _replace_column(connection, table, origin)
        for table in PIECE_TABLES:
            _replace_table(connection, table)
        for index in made:
            _run(connection, f"ALTER INDEX {index.name} RENAME TO {index.final}")
        connection.execute("DELETE FROM hermes_pgvector_settings WHERE name = %s", [SETTING])
        connection.execute(
            "INSERT INTO hermes_pgvector_settings (name, value) VALUES ('embedding_model', %s)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [origin.model],
        )

    _briefly(connection, change)


def _replace_column(connection: Connection, table: str, origin: Origin) -> None:
    _run(connection, f"ALTER TABLE {table} DROP COLUMN embedding")
    if origin.dimensions <= PLAIN_DIMENSIONS_MAX:
        _run(connection, f"ALTER TABLE {table} ALTER COLUMN embedding{SECOND} SET STORAGE PLAIN")
    _run(connection, f"ALTER TABLE {table} RENAME COLUMN embedding{SECOND} TO embedding")


def _replace_table(connection: Connection, table: str) -> None:
    names = [row["name"] for row in connection.execute(_CONSTRAINTS, {"table": table})]
    _run(connection, f"DROP TABLE {table}")
    _run(connection, f"ALTER TABLE {table}{SECOND} RENAME TO {table}")
    _run(connection, f"ALTER TABLE {table} RENAME COLUMN embedding{SECOND} TO embedding")
    for name in names:
        _run(connection, f"ALTER TABLE {table} RENAME CONSTRAINT {name}{SECOND} TO {name}")


def _copy_table(connection: Connection, table: str, kind: str, storage: str) -> None:
    """Make an empty table like that of chunks, for vectors of this type, with its keys, rights and policies."""
    copy = f"{table}{SECOND}"
    _run(connection, f"CREATE TABLE {copy} (LIKE {table} INCLUDING ALL EXCLUDING INDEXES EXCLUDING STATISTICS)")
    _run(connection, f"ALTER TABLE {copy} RENAME COLUMN embedding TO embedding{SECOND}")
    _run(connection, f"ALTER TABLE {copy} ALTER COLUMN embedding{SECOND} TYPE {kind},"
         f" ALTER COLUMN embedding{SECOND} SET STORAGE {storage}")  # fmt: skip
    for row in connection.execute(_CONSTRAINTS, {"table": table}):
        _run(connection, f"ALTER TABLE {copy} ADD CONSTRAINT {row['name']}{SECOND} {row['definition']}")
    for row in connection.execute(_PRIVILEGES, {"table": table}):
        _run(connection, f"GRANT {row['privileges']} ON {copy} TO {row['grantee']}")
    owner, own = fetch(
        connection,
        "SELECT relowner::regrole::text, relowner = current_user::regrole FROM pg_class WHERE oid = to_regclass(%s)",
        [table],
    )
    if not own:
        _run(connection, f"ALTER TABLE {copy} OWNER TO {owner}")
    connection.execute(_PROTECT, {"table": table, "copy": copy})


def _briefly(connection: Connection, change: Callable[[], None]) -> None:
    """Make a change that locks tables in one transaction; tries again until it gets the locks.

    Raises DatabaseUnavailable after LOCK_S_MAX seconds.
    """
    started = time.monotonic()
    while True:
        waited_s = time.monotonic() - started
        try:
            with connection.transaction():
                _run(connection, f"SET LOCAL lock_timeout = '{LOCK_MS if waited_s < LATER_S else LOCK_MS_LATER}ms'")
                change()
            return
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if waited_s > LOCK_S_MAX:
                raise DatabaseUnavailable(
                    f"the tables were in use for {LOCK_S_MAX:g} s: end long transactions, then run reembed again"
                ) from None
        time.sleep(PAUSE_S)


def _renamed(definition: str) -> str:
    """The definition of an index with the second column in place of the first one. Literals are themes; they stay."""
    parts = re.split(r"('(?:[^']|'')*')", definition)
    return "".join(part if part[:1] == "'" else re.sub(r"\bembedding\b", f"embedding{SECOND}", part) for part in parts)


def _run(connection: Connection, statement: str) -> None:
    """Run a statement of names out of this package and out of the catalogue, which quotes them."""
    connection.execute(statement.encode())


# The indexes of the column of vectors, also those that have it in their condition only, without those of constraints.
_INDEXES: LiteralString = """
    SELECT i.indexrelid::regclass::text AS name, pg_get_indexdef(i.indexrelid) AS definition
    FROM pg_index i
    WHERE i.indrelid = to_regclass(%(table)s) AND i.indisvalid
      AND EXISTS (
        SELECT FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
        WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refobjid = i.indrelid
          AND d.refclassid = 'pg_class'::regclass AND a.attname = 'embedding')
      AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)
    ORDER BY 1"""
_CONSTRAINTS: LiteralString = """
    SELECT quote_ident(conname) AS name, pg_get_constraintdef(oid) AS definition
    FROM pg_constraint WHERE conrelid = to_regclass(%(table)s) AND contype IN ('p', 'f', 'u') ORDER BY contype DESC"""
_PROTECT: LiteralString = """
    SELECT protect_memory_table(to_regclass(%(copy)s))
    FROM pg_class WHERE oid = to_regclass(%(table)s) AND relrowsecurity"""
_PRIVILEGES: LiteralString = """
    SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END AS grantee,
           string_agg(acl.privilege_type, ', ') AS privileges
    FROM pg_class, aclexplode(relacl) AS acl
    WHERE oid = to_regclass(%(table)s) AND acl.grantee <> relowner GROUP BY 1"""
