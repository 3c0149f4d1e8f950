"""Row security, by which Postgres shows a login the rows of its granted themes only: on, off, and a test of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import LiteralString

from psycopg import sql
from psycopg.rows import tuple_row

from .preflight import Connection, fetch

# What a login without grants gets. Agents also see the persons and rooms that they meet first; readers meet nobody.
OF_AGENTS, OF_READERS = ("*", "dm-*", "group-*"), ("*",)
# No theme has this name.
NOBODY = "*nobody*"


def turn_on(connection: Connection, defaults: Mapping[str, Sequence[str]] | None = None) -> dict[str, int]:
    """Protect each table with themes, also those that are protected already. Locks them for a moment.

    Call it, as `turn_off`, in a transaction in which no agent stores events: agents lock the tables in another order.

    Logins get their `defaults` in the same moment, as `grant_defaults` grants them; returns the number of new grants of
    each. Agents that write meanwhile wait: without its grants an event would be refused.

    A database that comes from Postgres 14 or earlier lets everybody make functions beside ours, which ours could then
    call instead of those of Postgres. That right is revoked.
    """
    schema = sql.Identifier(fetch(connection, "SELECT current_schema()")[0])
    with connection.transaction():
        connection.execute(sql.SQL("REVOKE CREATE ON SCHEMA {} FROM PUBLIC").format(schema))
        tables = fetch(connection, "SELECT array_agg(name::text) FROM memory_themed_tables()")[0]
        connection.execute(f"LOCK TABLE {', '.join(tables)} IN SHARE ROW EXCLUSIVE MODE".encode())
        made = {login: grant_defaults(connection, login, patterns) for login, patterns in (defaults or {}).items()}
        connection.execute("SELECT protect_memory_table(name) FROM memory_themed_tables()")
    return made


def turn_off(connection: Connection) -> None:
    """Have each login see all themes again. The grants stay."""
    with connection.transaction():
        connection.execute("SELECT unprotect_memory_table(name) FROM memory_themed_tables()")


def grant_defaults(connection: Connection, login: str, patterns: Sequence[str]) -> int:
    """Grant these patterns to a login that has none. Returns the number of new grants.

    A login that may meet persons and rooms also gets the themes of those that have rows already, and that nobody has.
    """
    with connection.transaction():
        made = connection.execute(_GRANT_PATTERNS, {"login": login, "patterns": list(patterns)}).rowcount
        cursor = connection.cursor(row_factory=tuple_row)
        for (statement,) in cursor.execute(_PERSONS).fetchall():
            made += connection.execute(statement.encode(), {"login": login}).rowcount
    return made


def is_group(connection: Connection, role: str) -> bool:
    """Whether a role cannot log in. A grant to it has no effect."""
    return bool(fetch(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s AND NOT rolcanlogin", [role]))


def blind_logins(connection: Connection) -> list[str]:
    """The logins that may read the turns and have no grant, but need one."""
    found: list[str] = fetch(connection, _BLIND)[0]
    return found


def flaws(connection: Connection) -> list[str]:
    """Why row security does not hold against the connected role; empty when it does. For an autocommit connection."""
    found: list[str] = fetch(connection, _FLAWS)[0]
    with connection.transaction():
        connection.execute(f"SET LOCAL hermes_pgvector.themes = '{NOBODY}'".encode())
        for name in fetch(connection, _READABLE)[0]:
            # The first pages tell it: reading all of a large table takes long.
            probe = sql.SQL("SELECT FROM {} WHERE ctid < '(64,0)' LIMIT 1").format(sql.Identifier(name))
            if connection.execute(probe).rowcount:
                found.append(f"a transaction without themes reads rows of {name}")
    return found


_GRANT_PATTERNS: LiteralString = """
    INSERT INTO memory_theme_grants (login, pattern)
    SELECT %(login)s, pattern FROM unnest(%(patterns)s::text[]) AS pattern
    WHERE NOT EXISTS (SELECT FROM memory_theme_grants WHERE login = %(login)s)"""
# A statement for each table.
_PERSONS: LiteralString = """
    SELECT format($$
      INSERT INTO memory_theme_grants (login, pattern, admitted)
      SELECT DISTINCT %%(login)s::name, t.theme, true
      FROM %s CROSS JOIN LATERAL unnest(ARRAY[%s]) AS t (theme)
      WHERE memory_theme_key(t.theme) = '@' AND NOT EXISTS (SELECT FROM memory_theme_grants WHERE pattern = t.theme)
        AND EXISTS (SELECT FROM memory_theme_grants WHERE login = %%(login)s AND pattern ~ '^(dm|group)-.*\\*$'
                    AND t.theme ^@ left(pattern, -1))
      ON CONFLICT DO NOTHING $$, name, array_to_string(columns, ', '))
    FROM memory_themed_tables()"""
_BLIND: LiteralString = """
    SELECT coalesce(array_agg(r.rolname::text ORDER BY r.rolname), '{}')
    FROM pg_roles r, pg_class c
    WHERE r.rolcanlogin AND NOT r.rolbypassrls AND c.oid = 'conversations'::regclass
      AND has_table_privilege(r.oid, c.oid, 'SELECT') AND NOT pg_has_role(r.oid, c.relowner, 'USAGE')
      AND NOT EXISTS (SELECT FROM memory_theme_grants WHERE login = r.rolname)"""
_FLAWS: LiteralString = """
    SELECT array(
        SELECT format('role %s %s', current_user, what)
        FROM pg_class c, pg_roles r, LATERAL (VALUES
            (r.rolname = current_user AND r.rolsuper, 'is a superuser'),
            (r.rolname = current_user AND r.rolbypassrls, 'has BYPASSRLS'),
            (r.oid = c.relowner AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
             'has the rights of the owner of the tables'),
            (r.rolname <> current_user AND r.oid <> c.relowner AND (r.rolsuper OR r.rolbypassrls),
             'can become a role to which row security does not apply')) AS f (flaw, what)
        WHERE c.oid = 'conversations'::regclass AND pg_has_role(r.oid, 'MEMBER') AND flaw
          AND (r.rolname = current_user OR NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user))
        UNION
        SELECT format('role %s may make functions in schema %s', current_user, n.nspname)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = 'conversations'::regclass AND has_schema_privilege(n.oid, 'CREATE')
          AND NOT pg_has_role(c.relowner, 'MEMBER')
        UNION
        SELECT 'tables without a policy that is enabled and forced: '
               || string_agg(name::text, ', ' ORDER BY name::text)
        FROM memory_themed_tables() JOIN pg_class c ON c.oid = name
        WHERE NOT (c.relrowsecurity AND c.relforcerowsecurity) OR NOT EXISTS (
          SELECT FROM pg_policy p
          WHERE p.polrelid = c.oid AND p.polname = 'memory_themes' AND p.polcmd = '*' AND p.polroles = '{0}')
        HAVING count(*) > 0
        UNION
        SELECT format('tables with a policy of others, %s: %s', p.polname,
                      string_agg(name::text, ', ' ORDER BY name::text))
        FROM memory_themed_tables() JOIN pg_class c ON c.oid = name JOIN pg_policy p ON p.polrelid = c.oid
        WHERE p.polpermissive AND p.polname <> 'memory_themes'
          AND NOT (p.polname = 'memory_owner' AND p.polroles = ARRAY[c.relowner])
        GROUP BY p.polname
        ORDER BY 1)"""
_READABLE: LiteralString = """
    SELECT coalesce(array_agg(name::text ORDER BY name::text), '{}')
    FROM memory_themed_tables() WHERE has_table_privilege(name, 'SELECT')"""
