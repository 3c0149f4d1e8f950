"""The choice of a database, by questions or from arguments; each database is tried before it is taken."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...errors import PgvectorError, SettingsError
from ...settings import Settings
from ...store.connection.dsn import describe, no_database, unusable
from ...store.embedded.cluster import AGENT
from ...store.embedded.server import EmbeddedServer
from ...store.probe import Found, has_password, probe, with_password
from ...store.schema import migrations
from ...store.schema.preflight import PasswordWanted, migrate_command
from ..console import Console
from ..database import ADMIN_DSN


@dataclass(frozen=True, slots=True)
class DatabaseChoice:
    """A database that answers: one of the user's own with its `dsn`, or the embedded `server`, with an empty one.

    `found` is None when the embedded server does not exist yet. `migrate` tells whether to create the tables, over
    `admin_dsn` if it is given, for the role of `dsn`.
    """

    dsn: str
    found: Found | None
    migrate: bool
    admin_dsn: str = ""
    server: EmbeddedServer | None = None

    @property
    def usable(self) -> bool:
        """Whether agents can use it after `prepare`."""
        return self.migrate or self.found is None or self.found.ready

    def prepare(self, dimensions: int | None, console: Console) -> list[str]:
        """Start the embedded server and create the tables as needed. Returns the applied migrations."""
        if self.server is not None:
            self.server.ensure_running()
        if not self.migrate:
            return []
        role, target = None, self.admin_dsn or self.dsn
        if self.server:
            role, target = AGENT, self.server.dsn
        elif self.found and self.admin_dsn:
            role = self.found.server_info.role
        applied = migrations.migrate(target, runtime_role=role, dimensions=dimensions, progress=console.say)
        if self.server is None:
            now = probe(self.dsn, 10)
            if not now.ready:
                lacks = ", ".join((*now.lacking, *now.server_info.missing)[:4])
                raise SettingsError(f"the tables are created, but {now.server_info.role} at {now.where} lacks {lacks}")
        return applied


class DatabaseChooser:
    """Chooses a database, each after it has answered. `server` is None when no embedded Postgres is installed."""

    def __init__(self, settings: Settings, server: EmbeddedServer | None, console: Console) -> None:
        self._settings, self._server, self._console = settings, server, console

    def ask(self) -> DatabaseChoice:
        """Ask until there is a database that answers."""
        options = [
            ("Embedded Postgres", "on this machine, for this home only; needs no maintenance"),
            ("A Postgres of your own", "shared by all hosts of a fleet; Postgres 15 or newer, pgvector 0.8 or newer"),
        ]
        current = "" if unusable(self._settings) else self._settings.dsn.get_secret_value()
        while True:
            chosen = self._console.choose("Where should the memory be stored?", options, default=int(bool(current)))
            try:
                choice = self._ask_for_address(current) if chosen else self.embedded()
                if choice is not None:
                    return choice
            except PgvectorError as error:
                self._console.say(f"✗ {error}")

    def embedded(self) -> DatabaseChoice:
        """The embedded server. An existing one is started and probed; a new one is created by `prepare`."""
        server = self._server
        if server is None:
            raise SettingsError(no_database())
        if not server.paths.data.exists():
            return DatabaseChoice("", None, migrate=True, server=server)
        with self._console.busy("starting the embedded server"):
            server.ensure_running()
            found = probe(server.dsn, self._settings.connect_timeout_s)
        return DatabaseChoice("", found, migrate=not found.ready, server=server)

    def own(self, dsn: str, *, ask: bool) -> DatabaseChoice:
        """A database of the user's own. With `ask` the user is asked for what is missing to use it.

        Raises what `probe` raises, and without `ask` SettingsError when only an administrator can create the tables.
        """
        dsn, found = self._probe(dsn, ask=ask)
        self._report(found)
        if found.ready:
            return DatabaseChoice(dsn, found, migrate=False)
        if not found.obstacle:
            migrate = not ask or self._console.confirm("Tables are missing or out of date. Create them?")
            if not migrate:
                self._console.say("! events wait in the spool until somebody has run: hermes-pgvector migrate")
            return DatabaseChoice(dsn, found, migrate)
        if ask:
            return self._ask_for_administrator(dsn, found)
        admin_dsn = os.environ.get(ADMIN_DSN, "")
        if not admin_dsn:
            raise SettingsError(f"{found.obstacle}; or set {ADMIN_DSN} for this run")
        return DatabaseChoice(dsn, found, migrate=True, admin_dsn=admin_dsn)

    def _ask_for_address(self, current: str) -> DatabaseChoice | None:
        question = (
            "Its address, like postgresql://user@host:5432/database (or type: back). "
            "Leave the password out: it is asked for separately, with hidden input"
        )
        while True:
            given = self._console.ask(question, current, shown=current and describe(current))
            if given in ("", "back"):
                return None
            try:
                return self.own(given, ask=True)
            except PgvectorError as error:
                self._console.say(f"✗ {error}")

    def _ask_for_administrator(self, dsn: str, found: Found) -> DatabaseChoice:
        role = found.server_info.role
        self._console.say(f"The tables cannot be used as {role}: {found.obstacle}")
        question = (
            f"An administrator's address of the same database, to create them and let {role} use them. "
            "It is used once and not saved (Enter: an administrator does it later)"
        )
        while given := self._console.ask(question):
            try:
                admin_dsn, admin = self._probe(given, ask=True)
                if not admin.obstacle:
                    return DatabaseChoice(dsn, found, migrate=True, admin_dsn=admin_dsn)
                self._console.say(f"✗ {admin.server_info.role}: {admin.obstacle}")
            except PgvectorError as error:
                self._console.say(f"✗ {error}")
        self._console.say(f"! events wait in the spool until an administrator has run: {migrate_command(role)}")
        return DatabaseChoice(dsn, found, migrate=False)

    def _probe(self, dsn: str, *, ask: bool) -> tuple[str, Found]:
        """The DSN, with a password if the server wants one, and what was found there."""
        try:
            with self._console.busy("connecting"):
                return dsn, probe(dsn, self._settings.connect_timeout_s)
        except PasswordWanted as error:
            if not ask or has_password(dsn):
                raise
            if "no password" not in str(error):  # one of ~/.pgpass is wrong
                self._console.say(f"✗ {error}")
        return self._probe(with_password(dsn, self._console.hidden(f"Password for {describe(dsn)}")), ask=False)

    def _report(self, found: Found) -> None:
        """Print what was found."""
        info, stored = found.server_info, found.stored
        say = self._console.say
        extension = f"pgvector {info.pgvector_version}" if info.pgvector_version else "no pgvector in it yet"
        answered = f"answers in {1000 * found.connect_s:.0f} ms: Postgres {info.server_version}"
        say(f"✓ {found.where} {answered}, {extension}")
        if stored:
            model = f" from {stored.embedding_model}" if stored.embedding_model else ""
            say(f"✓ it has the tables, for vectors of {stored.dimensions} dimensions{model}")
        if (info.owner or info.superuser) and not found.obstacle:
            say(
                f"! {info.role} may change tables; agents need a role that reads and writes rows only. To let one in: "
                "hermes-pgvector migrate --runtime-role ROLE"
            )
