"""What the server holds of deleted rows: planner statistics, dead rows, the write-ahead log; and clearing what can be.

For an administrator. Deleted rows stay in the files of tables and indexes until these are written anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

from ..queries import KINDS, SECOND
from ..schema.preflight import Connection, fetch
from ..schema.verification import TABLES

OLD_TRANSACTIONS_WAIT_S = 30.0
POLL_S = 0.5
LOCK_TIMEOUT_S = 20
# Of `rewrite`, after the tables: the catalogue of statistics, and a checkpoint.
FURTHER_STEPS = 2
# Tables that never hold what somebody said.
_WITHOUT_TEXT = ("hermes_pgvector_settings", "hermes_pgvector_leases", "memory_events", "memory_erasures")
_TABLES = tuple(table for table in TABLES if table not in _WITHOUT_TEXT)
# While another model takes over, its vectors of chunks are in tables of their own.
_SECOND = tuple(f"{kind['pieces']}{SECOND}" for kind in KINDS.values())


@dataclass(frozen=True, slots=True)
class Server:
    """What a role may clear on a server, and what of the server keeps what was deleted.

    `statistics` is whether it may delete planner statistics, `vacuum` whether it may rewrite all tables. `replicas` and
    `slots` are numbers, `archived` and `logged` whether the WAL is archived, and statements with their values logged.
    """

    statistics: bool
    vacuum: bool
    role: str
    bytes: int
    wal_mb_max: int
    archived: bool
    logged: bool
    replicas: int
    slots: int


def look(connection: Connection) -> Server:
    """What holds deleted rows on this server, as far as the role may see it."""
    (row,) = connection.execute(_LOOK, {"tables": tables(connection)})
    return Server(**row)


def clear_statistics(connection: Connection, *, delete: bool) -> None:
    """Compute the planner statistics of the tables anew. With `delete`, which needs a superuser, the old ones go first:
    those of an empty table or index would stay.
    """
    held = tables(connection)
    if delete:
        connection.execute(_DELETE_STATISTICS, {"tables": held})
    for table in held:
        connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(table)))


def old_transactions(connection: Connection) -> list[str]:
    """Wait for the transactions that may read what was deleted until now; returns those that do not end in time.

    While there is one, a rewritten table has the deleted rows, too.
    """
    deadline = time.monotonic() + OLD_TRANSACTIONS_WAIT_S
    now = {"now": fetch(connection, "SELECT pg_current_xact_id()::xid::text")[0]}
    while True:
        found = [str(row["holder"]) for row in connection.execute(_HOLDERS, now)]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(POLL_S)


def rewrite(connection: Connection) -> Iterator[str]:
    """VACUUM FULL of each table, which nobody can use meanwhile, and a checkpoint; yields what is done next."""
    connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(f"{LOCK_TIMEOUT_S}s")))
    for table in (*tables(connection), "pg_catalog.pg_statistic"):
        yield table
        name = sql.SQL(".").join(map(sql.Identifier, table.split(".")))
        connection.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}" if "." not in table else "VACUUM FULL {}").format(name))
    yield "checkpoint"
    connection.execute("CHECKPOINT")


def tables(connection: Connection) -> list[str]:
    """The tables that may hold what somebody said, or vectors of it."""
    there = fetch(connection, _EXISTING, {"tables": list(_SECOND)})[0]
    return [*_TABLES, *(there or ())]


_EXISTING: LiteralString = """
    SELECT array_agg(name) FROM unnest(%(tables)s::text[]) AS name WHERE to_regclass(name) IS NOT NULL"""

_LOOK: LiteralString = """
    SELECT r.rolsuper AS statistics,
           r.rolsuper OR (pg_has_role(d.datdba, 'USAGE') AND pg_has_role('pg_checkpoint', 'USAGE')
             AND NOT EXISTS (SELECT FROM unnest(%(tables)s::text[]) AS t (name)
                             JOIN pg_class c ON c.oid = to_regclass(t.name)
                             WHERE NOT pg_has_role(c.relowner, 'USAGE'))) AS vacuum,
           current_user::text AS role,
           (SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0)::bigint
              FROM unnest(%(tables)s::text[]) AS t (name)) AS bytes,
           (SELECT setting::int FROM pg_settings WHERE name = 'max_wal_size') AS wal_mb_max,
           current_setting('archive_mode') <> 'off' AS archived,
           current_setting('log_statement') IN ('mod', 'all') OR current_setting('log_min_duration_statement') <> '-1'
             AS logged,
           (SELECT count(*) FROM pg_stat_replication)::int AS replicas,
           (SELECT count(*) FROM pg_replication_slots)::int AS slots
    FROM pg_roles r, pg_database d
    WHERE r.rolname = current_user AND d.datname = current_database()"""

_DELETE_STATISTICS: LiteralString = """
    DELETE FROM pg_statistic
    WHERE starelid IN (
      SELECT unnest(array[c.oid] || coalesce(array(SELECT indexrelid FROM pg_index WHERE indrelid = c.oid), '{}'))
      FROM unnest(%(tables)s::text[]) AS t (name) JOIN pg_class c ON c.oid = to_regclass(t.name))"""

# Vacuum keeps a row that a transaction may still read: one of this database, one of a replica, a prepared one.
_HOLDERS: LiteralString = """
    SELECT format('process %%s (%%s)', pid, coalesce(nullif(application_name, ''), backend_type)) AS holder
    FROM pg_stat_activity
    WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND (datname = current_database() OR datname IS NULL)
      AND age(backend_xmin) > age(%(now)s::xid)
    UNION ALL
    SELECT format('replication slot %%s', slot_name) FROM pg_replication_slots
    WHERE age(xmin) > age(%(now)s::xid)
    UNION ALL
    SELECT format('prepared transaction %%s', gid) FROM pg_prepared_xacts
    WHERE database = current_database() AND age(transaction) > age(%(now)s::xid)"""
