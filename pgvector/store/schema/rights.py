"""The rights of the role that agents connect as: granted by `migrate`, checked by `doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import LiteralString, NamedTuple

from psycopg import sql

from ...errors import SettingsError
from .preflight import Connection, fetch
from .verification import TABLES

_ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE")
# Agents add to the history and read the settings. The functions do what else they need there.
_NARROW = {"memory_history": ("SELECT", "INSERT"), "hermes_pgvector_settings": ("SELECT",)}
_GRANTED = [(name, right) for name in TABLES for right in _NARROW.get(name, _ROWS)]
_BARRED = [
    (name, right)
    for name, held in {**_NARROW, "memory_theme_grants": ()}.items()
    for right in (*_ROWS, "TRUNCATE")
    if right not in held
]
_SEQUENCES = ("memory_entries", "conversations", "memory_agent_edges", "memory_history", "facts")
_READING = (
    "content_key",
    "memory_theme_key",
    "memory_theme_prefixes",
    "memory_themes",
    "memory_theme_granted",
    "memory_rows_with_words",
    "memory_entries_with_texts",
)
_FUNCTIONS = (
    *_READING,
    "admit_memory_themes",
    "claim_memory_setting",
    "add_memory_erasure_key",
    "complete_memory_history",
    "settle_memory_history",
    "move_memory_history",
    "prune_memory_history",
    "forget_memory_trial",
)


class Rights(NamedTuple):
    """The rights that a role lacks, and those that it has beyond what agents need; all for an owner or a superuser."""

    missing: tuple[str, ...]
    excess: tuple[str, ...]


def held(connection: Connection, role: str | None = None) -> Rights:
    """The rights of a role, by default of the connected one. A table or function that is not there counts for none."""
    values = {
        "role": role, "functions": list(_FUNCTIONS), "sequences": list(_SEQUENCES),
        "tables": [name for name, _ in _GRANTED], "rights": [right for _, right in _GRANTED],
        "barred_tables": [name for name, _ in _BARRED], "barred": [right for _, right in _BARRED],
    }  # fmt: skip
    missing, excess = fetch(connection, _HELD, values)
    return Rights(tuple(missing), tuple(excess))


def check_role(connection: Connection, role: str) -> None:
    """Raise SettingsError when the server has no such role."""
    if not fetch(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", [role]):
        make = f"CREATE ROLE {sql.Identifier(role).as_string()} LOGIN;"
        raise SettingsError(f"role {role!r} does not exist on the server; make it first, in psql: {make}")


def ensure(connection: Connection, role: str, *, narrow: bool = True) -> None:
    """Give a role what agents need, unless it has that: to read and write rows, no DDL.

    `narrow` revokes what earlier releases granted. The owner of the tables keeps its rights: the functions need them.
    """
    has = held(connection, role)
    if has.missing or (narrow and has.excess):
        _grant(connection, role, narrow=narrow)


def _grant(connection: Connection, role: str, *, narrow: bool) -> None:
    (schema, owner) = fetch(
        connection,
        "SELECT current_schema(), pg_has_role(%(role)s, relowner, 'USAGE') FROM pg_class"
        " WHERE oid = to_regclass('conversations')",
        {"role": role},
    )
    to = sql.Identifier(role)
    statements = [
        sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(schema), to),
        sql.SQL("GRANT SELECT ON hermes_pgvector_migrations TO {}").format(to),
        sql.SQL("GRANT USAGE, SELECT ON SEQUENCE {} TO {}").format(_names(f"{name}_id_seq" for name in _SEQUENCES), to),
        sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(_names(_FUNCTIONS), to),
    ]
    for right in _ROWS:
        tables = _names(name for name, granted in _GRANTED if granted == right)
        statements.append(sql.SQL("GRANT {} ON {} TO {}").format(sql.SQL(right), tables, to))
    if narrow and not owner:
        statements += [
            sql.SQL("REVOKE {} ON {} FROM {}").format(sql.SQL(right), sql.Identifier(name), to)
            for name, right in _BARRED
        ]
    with connection.transaction():
        for statement in statements:
            connection.execute(statement)


def grant_reader(connection: Connection, role: str) -> None:
    """Grant a role to read all rows but those of the keys, which only roles that store turns may see.

    Raises SettingsError when there is no such role.
    """
    check_role(connection, role)
    schema = sql.Identifier(fetch(connection, "SELECT current_schema()")[0])
    tables, to = _names(TABLES), sql.Identifier(role)
    with connection.transaction():
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, to))
        connection.execute(sql.SQL("GRANT SELECT ON hermes_pgvector_migrations, {} TO {}").format(tables, to))
        connection.execute(sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(_names(_READING), to))
        for statement in _HIDE_KEYS:
            connection.execute(statement)


def _names(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


# The name of the table is looked up once, here: a table of a session's own does not take its place.
_HIDE_KEYS: tuple[LiteralString, ...] = (
    "ALTER TABLE hermes_pgvector_settings ENABLE ROW LEVEL SECURITY",
    "DROP POLICY IF EXISTS memory_keys ON hermes_pgvector_settings",
    """CREATE POLICY memory_keys ON hermes_pgvector_settings
       USING (name NOT LIKE '%\\_key' OR has_table_privilege('conversations'::regclass, 'INSERT'))""",
)
_HELD: LiteralString = """
    SELECT array(
             SELECT lower(wanted) || ' on ' || name
             FROM unnest(%(tables)s::text[], %(rights)s::text[]) AS t (name, wanted)
             WHERE NOT has_table_privilege(role.name, to_regclass(name), wanted)
             UNION ALL
             SELECT 'usage on ' || name || '_id_seq' FROM unnest(%(sequences)s::text[]) AS s (name)
             WHERE NOT has_sequence_privilege(role.name, to_regclass(name || '_id_seq'), 'USAGE')
             UNION ALL
             SELECT 'execute on ' || name FROM unnest(%(functions)s::text[]) AS f (name)
             WHERE NOT has_function_privilege(role.name, to_regproc(name), 'EXECUTE')
             ORDER BY 1),
           array(
             SELECT lower(barred) || ' on ' || name
             FROM unnest(%(barred_tables)s::text[], %(barred)s::text[]) AS t (name, barred)
             WHERE has_table_privilege(role.name, to_regclass(name), barred)
             ORDER BY 1)
    FROM (SELECT coalesce(%(role)s, current_user)::name AS name) AS role"""
