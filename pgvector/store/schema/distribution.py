"""Distributes the tables by their theme over the nodes of a Citus cluster, as an administrator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from ...errors import SchemaNotApplied
from .preflight import Connection, admin_connection, fetch, set_timeouts

# Each after those that it refers to. What is looked up by other keys than a theme stays on the coordinator, as do small
# tables without a theme; the settings are on all nodes.
DISTRIBUTED = (
    "memory_entries",
    "conversations",
    "facts",
    "memory_entry_pieces",
    "conversation_pieces",
    "fact_pieces",
    "fact_scopes",
    "memory_events",
    "memory_withdrawals",
    "memory_pruned_turns",
    "memory_history",
    "memory_agents",
    "memory_agent_edges",
    "memory_words",
)
EVERYWHERE = "hermes_pgvector_settings"
SETUP = Path(__file__).with_name("citus.sql")


def distribute(dsn: str, progress: Callable[[str], object]) -> list[str]:
    """Distribute the tables that are not distributed yet, and return their names. Call it after each migration.

    Raises SchemaNotApplied when the database is not that of a Citus coordinator, or the role is no superuser.
    """
    with admin_connection(dsn) as connection:
        set_timeouts(connection)
        _check(connection)
        try:
            # The triggers of the entries write to rows of the same theme, so they stay on their node.
            connection.execute("SET citus.enable_unsafe_triggers = on")
        except psycopg.errors.InsufficientPrivilege:
            raise SchemaNotApplied(
                f"distributing the tables takes a superuser; {connection.info.user!r} is none"
            ) from None
        made = [name for name in (*DISTRIBUTED, EVERYWHERE) if not fetch(connection, _IS_KNOWN, [name])]
        for name in made:
            progress(f"distributing {name}")
            with _without_triggers(connection, name):
                connection.execute(
                    _COPY if name == EVERYWHERE else _DISTRIBUTE, {"name": name, "beside": DISTRIBUTED[0]}
                )
        for name in (*DISTRIBUTED, EVERYWHERE):
            # The rows are copied; their first place keeps them, invisible, also what an interrupted run has copied.
            connection.execute(_TRUNCATE_FIRST_PLACE, [name])
        # One by one, because Citus passes each on as it was sent.
        for statement in re.split(r"\n\n(?=--)", SETUP.read_text(encoding="utf-8")):
            connection.execute(statement.encode())
    return made


@contextmanager
def _without_triggers(connection: Connection, table: str) -> Iterator[None]:
    """A transaction in which a table has no triggers: they would run for each row that is copied to a node."""
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        triggers = cursor.execute(_TRIGGERS, [table]).fetchall()
        for name, _ in triggers:
            cursor.execute(sql.SQL("DROP TRIGGER {} ON {}").format(sql.Identifier(name), sql.Identifier(table)))
        yield
        for _, definition in triggers:
            cursor.execute(definition)


def _check(connection: Connection) -> None:
    """Raise SchemaNotApplied with the remedy when the database is not the coordinator of a cluster with nodes."""
    database = connection.info.dbname
    if not fetch(connection, "SELECT 1 FROM pg_extension WHERE extname = 'citus'"):
        raise SchemaNotApplied(
            f"database {database!r} has no Citus; on each node install it and, as a superuser, run in the database: "
            "CREATE EXTENSION citus; CREATE EXTENSION vector; then add the nodes to the coordinator (citus_add_node)"
        )
    group, nodes = fetch(connection, _NODES)
    if group != 0:
        raise SchemaNotApplied(f"database {database!r} is that of a worker; give migrate the --dsn of the coordinator")
    if not nodes:
        raise SchemaNotApplied(
            f"the coordinator of {database!r} knows no node that holds rows; for each node run: "
            "SELECT citus_add_node('HOST', PORT)"
        )


_NODES: LiteralString = """
    SELECT (SELECT groupid FROM pg_dist_local_group), count(*)
    FROM pg_dist_node WHERE isactive AND shouldhaveshards"""
_TRIGGERS: LiteralString = """
    SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal"""
_IS_KNOWN: LiteralString = "SELECT 1 FROM pg_dist_partition WHERE logicalrelid = to_regclass(%s)"
_COPY: LiteralString = "SELECT create_reference_table(%(name)s::text)"
_TRUNCATE_FIRST_PLACE: LiteralString = """
    SELECT truncate_local_data_after_distributing_table(name)
    FROM to_regclass(%s) AS name WHERE pg_relation_size(name) > 0"""
_DISTRIBUTE: LiteralString = """
    SELECT create_distributed_table(%(name)s::text, 'agent_identity', colocate_with =>
                                    CASE WHEN %(name)s::text = %(beside)s THEN 'default' ELSE %(beside)s::text END)"""
