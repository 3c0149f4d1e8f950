"""migrate: create or upgrade the tables, as the database's administrator."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ..errors import SettingsError
from ..settings import load
from ..store import clients
from ..store.connection.dsn import describe
from ..store.embedded.cluster import AGENT
from ..store.queries import QUERIES
from ..store.schema import distribution, migrations, rights, row_security, verification
from ..store.schema.preflight import Connection, admin_connection, set_timeouts
from .console import Console, counted
from .database import administrators_dsn, apply_missing


def migrate(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Apply the missing migrations, and grant `--runtime-role` what agents need and `--reader-role` to read. Returns 0.

    Raises SettingsError when agents of an earlier release are connected to a database that lacks migrations.
    """
    settings = load(home)
    target, embedded = administrators_dsn(settings, home, console, args.dsn, create=True)
    older = _older(target, console, force=args.force)
    role = args.runtime_role or (AGENT if embedded else None)
    narrow = embedded or not any(client.role == role for client in older)
    applied = apply_missing(target, settings, console, role=role, narrow=narrow, dimensions=args.dimensions)
    if not narrow:
        console.say(
            f"agents of an earlier release connect as {role}, so it keeps the right to change the history and the "
            "settings; run migrate --runtime-role again when they have ended"
        )
    with admin_connection(target) as connection:
        set_timeouts(connection)
        state = _set_up_roles(connection, console, role, args)
    distributed = args.citus or state.distributed
    # After each migration, because a new table may be one to distribute.
    made = distribution.distribute(target, console.say) if distributed else []
    if made:
        console.show(f"distributed {counted(len(made), 'table')} over the nodes of the cluster; restart the agents")
    where = "the embedded server" if embedded else describe(target)
    console.data(
        {"database": where, "applied": applied, "version": state.version, "runtime_role": args.runtime_role,
         "distributed": distributed, "row_security": state.row_security}
    )  # fmt: skip
    if applied:
        console.show(f"applied {', '.join(applied)} to {where}")
    else:
        console.show(f"nothing to do: {where} has schema version {state.version}")
    if args.dimensions not in (None, state.dimensions):
        console.say(
            f"--dimensions {args.dimensions} was ignored: the tables have vectors of {state.dimensions} dimensions; "
            "for another number create an empty database, run migrate on it, and set dsn to it"
        )
    return 0


def _set_up_roles(
    connection: Connection, console: Console, role: str | None, args: argparse.Namespace
) -> verification.SchemaState:
    """Give the reader its rights, and turn row security on or off; returns the state of the database then."""
    if args.reader_role:
        rights.grant_reader(connection, args.reader_role)
        console.say(f"role {args.reader_role} may read the memory")
    _check_cluster(connection, args)
    if args.row_security is not None:
        _secure(connection, console, role, args.reader_role, on=args.row_security)
    state = verification.verify(connection)
    if state.row_security:
        _name_blind(connection, console)
    return state


def _check_cluster(connection: Connection, args: argparse.Namespace) -> None:
    """Raise SettingsError when the tables are to be distributed and protected at once."""
    state = verification.verify(connection)
    secured = state.row_security if args.row_security is None else args.row_security
    if secured and (args.citus or state.distributed):
        raise SettingsError(
            "row security does not work on a Citus cluster: give each group of people a database of its own, and turn "
            "it off before --citus, with hermes-pgvector migrate --no-row-security"
        )


def _secure(connection: Connection, console: Console, role: str | None, reader: str | None, *, on: bool) -> None:
    """Turn row security on, so that roles without grants get some, or off, while no agent stores events."""
    if not on:
        with connection.transaction():
            connection.execute(QUERIES["lock_links"])
            row_security.turn_off(connection)
        console.say("row security is off: all logins see all themes; their grants stay")
        return
    for login in filter(None, (role, reader)):
        if row_security.is_group(connection, login):
            raise SettingsError(
                f"role {login} cannot log in, and grants hold for logins, not for the members of a group: give each "
                "member what it needs with hermes-pgvector grants add, and run migrate --row-security without the group"
            )
    defaults = {reader: row_security.OF_READERS, role: row_security.OF_AGENTS}
    with connection.transaction():
        connection.execute(QUERIES["lock_links"])
        made = row_security.turn_on(connection, {login: patterns for login, patterns in defaults.items() if login})
    for login, number in made.items():
        if number:
            console.say(
                f"role {login} has {counted(number, 'new grant')}; to see and change them: hermes-pgvector grants"
            )
    console.say("row security is on: each login sees the themes that its grants hold")


def _name_blind(connection: Connection, console: Console) -> None:
    """Say which logins see nothing, because they have no grants."""
    for login in row_security.blind_logins(connection):
        console.say(
            f"row security is on and role {login} has no grants, so it sees and stores nothing: "
            f"hermes-pgvector grants add {shlex.quote(login)} '*'"
        )


def _older(dsn: str, console: Console, *, force: bool) -> list[clients.OldConnection]:
    """The connections of earlier releases. Raises SettingsError for them when migrations are missing."""
    with admin_connection(dsn) as connection:
        pending, older = migrations.pending(connection), clients.older(connection)
    if pending and older and not force:
        console.say(clients.listed(older))
        raise SettingsError(
            "agents of an earlier release use this database: upgrade or end them, then run migrate again; "
            "or go on with --force, when CHANGELOG.md says that they can go on beside the new schema"
        )
    return older
