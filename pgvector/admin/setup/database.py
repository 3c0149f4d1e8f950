"""The choice of a database, by questions or from arguments; each database is tried before it is taken."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...errors import PgvectorError, SettingsError
from ...settings import Settings
from ...store.connection.database import no_database, unusable
from ...store.connection.dsn import describe
from ...store.embedded.server import EmbeddedServer
from ...store.probe import Found, has_password, probe, with_password
from ...store.schema import migrations
from ...store.schema.preflight import PasswordWanted, migrate_command
from ..console import Console
from ..database import ADMIN_DSN
from .prompts import Prompts


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
        role = self.found.facts.role if self.found and self.admin_dsn else None
        target = self.server.dsn if self.server else self.admin_dsn or self.dsn
        applied = migrations.migrate(target, runtime_role=role, dimensions=dimensions, progress=console.say)
        if self.server is None:
            now = probe(self.dsn, 10)
            if not now.ready:
                lacks = ", ".join((*now.lacking, *now.facts.missing)[:4])
                raise SettingsError(f"the tables are created, but {now.facts.role} at {now.where} lacks {lacks}")
        return applied


class DatabaseQuestions:
    """The questions about the database."""

    def __init__(self, settings: Settings, server: EmbeddedServer | None, prompts: Prompts, console: Console) -> None:
        self._settings, self._server, self._prompts, self._console = settings, server, prompts, console
        self._current = "" if unusable(settings) else settings.dsn.get_secret_value()

    def ask(self) -> DatabaseChoice:
        """Ask until there is a database that answers."""
        options = [
            ("Embedded Postgres", "on this machine, for this home only; needs no maintenance"),
            ("A Postgres of your own", "shared by all hosts of a fleet; Postgres 15 or newer, pgvector 0.8 or newer"),
        ]
        while True:
            chosen = self._prompts.choose(
                "Where should the memory be stored?", options, default=int(bool(self._current))
            )
            try:
                choice = self._own() if chosen else embedded(self._settings, self._server, self._console)
                if choice is not None:
                    return choice
            except PgvectorError as error:
                self._console.say(f"✗ {error}")

    def _own(self) -> DatabaseChoice | None:
        question = (
            "Its address, like postgresql://user@host:5432/database (or type: back). "
            "Leave the password out: it is asked for separately, with hidden input"
        )
        while True:
            given = self._prompts.ask(question, self._current, shown=self._current and describe(self._current))
            if given in ("", "back"):
                return None
            try:
                dsn, found = self._probe_with_password(given)
                report(found, self._console)
                return self._with_tables(dsn, found)
            except PgvectorError as error:
                self._console.say(f"✗ {error}")

    def _probe_with_password(self, dsn: str) -> tuple[str, Found]:
        try:
            return dsn, self._probe(dsn)
        except PasswordWanted as error:
            if has_password(dsn):
                raise
            self._console.say(f"{error}")
            dsn = with_password(dsn, self._prompts.hidden(f"Password for {describe(dsn)}"))
            return dsn, self._probe(dsn)

    def _probe(self, dsn: str) -> Found:
        with self._console.busy("connecting"):
            return probe(dsn, self._settings.connect_timeout_s)

    def _with_tables(self, dsn: str, found: Found) -> DatabaseChoice:
        if found.ready:
            return DatabaseChoice(dsn, found, migrate=False)
        if not found.obstacle:
            return DatabaseChoice(
                dsn, found, migrate=self._prompts.confirm("Tables are missing or out of date. Create them?")
            )
        role = found.facts.role
        self._console.say(f"The tables cannot be used as {role}: {found.obstacle}")
        question = (
            f"An administrator's address of the same database, to create them and let {role} use them. "
            "It is used once and not saved (Enter: an administrator does it later)"
        )
        while True:
            given = self._prompts.ask(question)
            if not given:
                self._console.say(f"! events wait in the spool until an administrator has run: {migrate_command(role)}")
                return DatabaseChoice(dsn, found, migrate=False)
            try:
                admin_dsn, admin = self._probe_with_password(given)
            except PgvectorError as error:
                self._console.say(f"✗ {error}")
                continue
            if not admin.obstacle:
                return DatabaseChoice(dsn, found, migrate=True, admin_dsn=admin_dsn)
            self._console.say(f"✗ {admin.facts.role}: {admin.obstacle}")


def embedded(settings: Settings, server: EmbeddedServer | None, console: Console) -> DatabaseChoice:
    """The choice of the embedded server. An existing one is started and probed; a new one is created by `prepare`."""
    if server is None:
        raise SettingsError(no_database())
    if not server.paths.data.exists():
        return DatabaseChoice("", None, migrate=True, server=server)
    with console.busy("starting the embedded server"):
        server.ensure_running()
        found = probe(server.dsn, settings.connect_timeout_s)
    return DatabaseChoice("", found, migrate=not found.ready, server=server)


def own(dsn: str, settings: Settings, console: Console) -> DatabaseChoice:
    """The choice of a given database, without questions. Raises what `probe` raises, and SettingsError."""
    found = probe(dsn, settings.connect_timeout_s)
    report(found, console)
    admin_dsn = os.environ.get(ADMIN_DSN, "")
    if found.ready or not found.obstacle:
        return DatabaseChoice(dsn, found, migrate=not found.ready)
    if not admin_dsn:
        raise SettingsError(f"{found.obstacle}; or set {ADMIN_DSN} for this run")
    return DatabaseChoice(dsn, found, migrate=True, admin_dsn=admin_dsn)


def report(found: Found, console: Console) -> None:
    """Print what was found."""
    facts = found.facts
    installed = f"pgvector {facts.pgvector_version}" if facts.pgvector_version else "no pgvector in this database yet"
    console.say(
        f"✓ {found.where} answers in {1000 * found.connect_s:.0f} ms: Postgres {facts.server_version}, {installed}"
    )
    if found.stored:
        model = f" from {found.stored.embedding_model}" if found.stored.embedding_model else ""
        console.say(f"✓ it has the tables, for vectors of {found.stored.dimensions} dimensions{model}")
    if (facts.owner or facts.superuser) and not found.obstacle:
        console.say(
            f"! {facts.role} may change tables; agents need a role that reads and writes rows only. To let one in: "
            "hermes-pgvector migrate --runtime-role ROLE"
        )
