"""Checks of a server that answers: what it refuses or endangers, the statements of the store, and a trial entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

from ...errors import SERVER_DISK_FULL, PgvectorError
from ...model import now
from ...session.themes import trial_theme
from ...settings import Settings
from ...store import pruning
from ...store.connection.database import Database
from ...store.diagnosis import Health, Locked, disk_is_full, failing_statements, health, waiting_briefly
from ...store.schema import row_security
from ...store.schema.preflight import migrate_command
from ...store.schema.verification import LATEST, SchemaState
from ..check import Check, failed, in_psql, place_of_setting, quoted
from ..console import counted
from ..database import running, wait_ready
from ..round_trip import round_trip
from .tables import locks, statements, tables
from .themes import names

CANARY_THEME = "doctor-canary"
CLOCK_S_MAX = 5.0


def server(settings: Settings, home: Path, schema: SchemaState) -> Iterator[Check]:
    """What a server that has this schema would do to reads and writes."""
    try:
        with closing(Database(settings, home)) as database, database.connection() as connection:
            database.verify(connection)
            with waiting_briefly(connection):
                asked = now()
                found = health(connection)
                answered = now()
                themes = pruning.themes(connection)
            # The disk of a private server is looked at as a disk of this host.
            owned = database.server is not None
            full = not (owned or found.standby or found.read_only) and disk_is_full(connection)
            role, name = connection.info.user, connection.info.dbname
            flaws = row_security.flaws(connection) if schema.row_security else []
            try:
                # A standby plans no statement that writes.
                planned = [] if found.standby else [statements(failing_statements(connection), role)]
            except Locked as error:
                planned = list(locks(error.holders))
    except Locked as error:
        yield from locks(error.holders)
        return
    except PgvectorError as error:
        yield failed("statements", str(error))
        return
    yield from _modes(found, role, name, owned=owned)
    yield from names(settings, themes)
    yield from _row_security(flaws, role, on=schema.row_security)
    if full:
        remedy = "free space on the server; meanwhile events wait in the spool, and are stored then"
        yield Check("server's disk", "problem", SERVER_DISK_FULL, remedy)
    yield _clock(asked + (answered - asked) / 2 - found.clock)
    yield from tables(found, complete=schema.version == LATEST, distributed=schema.distributed)
    yield from planned


def canary(settings: Settings, home: Path) -> Iterator[Check]:
    """Whether an entry is stored, recalled and removed, as agents do it, in a theme of its own if that is allowed."""
    remedy = "see the other checks; until it works, what agents say is kept in the spool"
    theme = trial_theme(CANARY_THEME, settings)
    try:
        with running(settings, home) as runtime:
            wait_ready(runtime)
            how, took_ms = round_trip(runtime, theme)
    except PgvectorError as error:
        yield Check("canary", "problem", f"an entry could not be stored, recalled and removed: {error}", remedy)
        return
    if how == "not":
        yield Check("canary", "problem", "an entry was stored but not recalled", remedy)
    else:
        found = f"an entry was stored, recalled by {how} in {took_ms:.0f} ms, and removed"
        degraded = Check("canary", "warning", found, "see `embedder` and `model` above")
        yield degraded if how == "words" else Check("canary", "ok", found)


def _modes(found: Health, role: str, database: str, *, owned: bool) -> Iterator[Check]:
    if found.standby:
        remedy = "connect to the primary: list all hosts in the address and add target_session_attrs=read-write"
        yield Check("writes", "problem", "this server is a standby: nothing can be stored here", remedy)
    elif found.read_only:
        place = place_of_setting(found.read_only, role, database)
        reload = ["select pg_reload_conf()"] if place == "system" else []
        writable = "set default_transaction_read_only = off"
        remedy = in_psql(writable, f"alter {place} reset default_transaction_read_only", *reload)
        yield Check("writes", "problem", "transactions are read-only: nothing can be stored", remedy)
    else:
        yield Check("writes", "ok", "transactions may write")
    if found.synchronous_commit == "off":
        remedy = in_psql(f"alter role {quoted(role)} set synchronous_commit = on")
        what = "synchronous_commit is off: a crash of the server loses what it confirmed last"
        yield Check("durability", "warning", what, remedy)
    elif found.standbys and not found.synchronous_standbys:
        what = f"{counted(found.standbys, 'standby', 'standbys')} may lag: a failover loses what was not copied yet"
        statement = "alter system set synchronous_standby_names = '*'"
        yield Check("durability", "warning", what, in_psql(statement, "select pg_reload_conf()"))
    if not (owned or found.encrypted or _is_local(found.client)):
        what = f"the connection from {found.client} is not encrypted"
        yield Check("encryption", "warning", what, "add sslmode=verify-full to HERMES_PGVECTOR_DSN")


def _row_security(flaws: Sequence[str], role: str, *, on: bool) -> Iterator[Check]:
    if not flaws:
        held = f"on: {role} sees the themes that its grants hold" if on else "off: each login sees all themes"
        yield Check("row security", "ok", held)
    for flaw in flaws:
        again = f"{migrate_command(role)} --row-security"
        remedy = again if flaw.startswith("table") else f"have agents connect as another role: {again}"
        yield Check("row security", "problem", f"it does not keep the themes apart: {flaw}", remedy)


def _is_local(client: str) -> bool:
    return not client or ip_address(client).is_loopback


def _clock(ahead: timedelta) -> Check:
    seconds = ahead.total_seconds()
    if abs(seconds) <= CLOCK_S_MAX:
        return Check("clock", "ok", "this host and the server agree")
    which = "ahead of" if seconds > 0 else "behind"
    what = f"the clock of this host is {abs(seconds):.0f} s {which} that of the server"
    return Check("clock", "warning", what, "set both by NTP: the order of changes follows the clocks of the hosts")
