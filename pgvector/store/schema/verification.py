"""Checks at run time that the schema is there and new enough. Reads one row and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString, NamedTuple

import psycopg

from ...errors import ClientTooOld, SchemaNotApplied
from ...hosts.installation import upgrade
from .preflight import Connection, fetch, migrate_command

LATEST = 18
"""The version of the newest migration. A bare copy of the package lacks the files, so it is not counted."""

APPLICATION = f"hermes-pgvector/{LATEST}"
"""The name of a client's connections, with the schema that it knows; that of release 2.0.0 has no number."""

TABLES = (
    "memory_entry_pieces",
    "conversation_pieces",
    "memory_entries",
    "conversations",
    "memory_events",
    "memory_tombstones",
    "memory_withdrawals",
    "memory_history",
    "memory_agents",
    "memory_agent_edges",
    "memory_words",
    "memory_person_links",
    "memory_erasures",
    "memory_pruned_turns",
    "memory_renames",
    "fact_pieces",
    "facts",
    "fact_scopes",
    "hermes_pgvector_settings",
    "hermes_pgvector_leases",
)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The schema of a database: length and model of its vectors (model None before the first vector), and version.

    `distributed` is whether its tables are distributed over the nodes of a cluster, `row_security` whether Postgres
    keeps the themes of logins apart.
    """

    dimensions: int
    embedding_model: str | None
    version: int
    distributed: bool = False
    row_security: bool = False


class Origin(NamedTuple):
    """What vectors have to have in common to be compared: the model that made them, and their length."""

    model: str
    dimensions: int


def verify(connection: Connection, command: str = "") -> SchemaState:
    """Check with one SELECT that the database has all migrations of this package; it may have newer ones.

    The connection is in autocommit mode. Raises ClientTooOld, and SchemaNotApplied that names the `command` to run, by
    default `migrate`.
    """
    command = command or migrate_command(connection.info.user)
    try:
        applied, model, dimensions, oldest_client, distributed, row_security = fetch(connection, _STATE)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege) as error:
        problem = f"database {connection.info.dbname!r} has no memory schema on its search_path"
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            problem = f"role {connection.info.user!r} may not read the memory in database {connection.info.dbname!r}"
        raise SchemaNotApplied(f"{problem}; run: {command}") from None
    missing = sorted(set(range(1, LATEST + 1)) - set(applied or ()))
    if missing or dimensions is None:
        raise SchemaNotApplied(
            f"database {connection.info.dbname!r} has migrations {sorted(applied or ())} and lacks {missing}; "
            f"run: {command}"
        )
    check_served(oldest_client)
    return SchemaState(dimensions, model, max(applied), distributed, bool(row_security))


def check_served(oldest_client: int) -> None:
    """Raise ClientTooOld when the oldest clients that a database serves know a newer schema than this package."""
    if oldest_client > LATEST:
        raise ClientTooOld(
            f"upgrade this release, which knows schema {LATEST}: the database serves those that know schema "
            f"{oldest_client} or a newer one, and events wait in the spool; run: {upgrade()}"
        )


_STATE: LiteralString = """
    SELECT (SELECT array_agg(version) FROM hermes_pgvector_migrations),
           (SELECT value FROM hermes_pgvector_settings WHERE name = 'embedding_model'),
           (SELECT atttypmod FROM pg_attribute
             WHERE attrelid = to_regclass('conversations') AND attname = 'embedding' AND atttypmod > 0),
           coalesce((SELECT value::int FROM hermes_pgvector_settings WHERE name = 'oldest_client'), 0),
           -- Citus puts this trigger on each distributed table.
           EXISTS (SELECT 1 FROM pg_trigger
                   WHERE tgrelid = to_regclass('conversations') AND tgfoid = to_regproc('citus_truncate_trigger')),
           (SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass('conversations'))"""
