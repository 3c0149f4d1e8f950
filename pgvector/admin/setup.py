"""setup: from nothing to a memory that works, by asking in the terminal or without asking at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadArgument, PgvectorError, SettingsError
from ..settings import ENV_PREFIX, Settings, load
from ..store.embedded.server import EmbeddedServer
from . import INTERRUPTED, configuration, database_choice, link, trial
from .configuration import Saved
from .console import Console
from .database_choice import DatabaseChoice, DatabaseQuestions
from .dialogue import Dialogue
from .embedder_choice import EmbedderChoice, EmbedderQuestions, changed, misfit, tried

KEYS = ("embed_url", "embed_model", "embed_api", "embed_key_env", "embed_dimensions")


@dataclass(frozen=True, slots=True)
class Given:
    """What need not be asked. None and False mean that it is not given; with `yes` nothing is asked."""

    embedded: bool = False
    dsn: str | None = None
    embed_url: str | None = None
    embed_model: str | None = None
    yes: bool = False


def wizard(hermes_home: str, config: MutableMapping[str, Any]) -> None:
    """The host's `hermes memory setup pgvector`; `config` is its configuration, and is saved through the host.

    Raises SystemExit when nobody can be asked.
    """

    def activate(saved: Mapping[str, Any]) -> bool:
        configuration.activate_in_host(config, saved)
        return True

    console = Console(False)
    try:
        code = _Setup(Path(hermes_home).expanduser().resolve(), console, Given(), activate).run()
        if code == INTERRUPTED and not sys.stdin.isatty():
            # A host that keeps plugins in a process of their own shows nobody what is said there, but this.
            raise SystemExit("there is no terminal to ask questions in; run: hermes-pgvector setup")
    except PgvectorError as error:
        console.say(f"✗ {error}")
        console.say("Nothing was saved; the settings are as they were.")


def setup(home: Path, console: Console, given: Given) -> int:
    """The same from our own command line; it also links the plugin into the home."""
    if given.embedded and given.dsn:
        raise BadArgument("--embedded and --dsn exclude each other; give one")
    if console.as_json and not given.yes:
        raise BadArgument("--json leaves no room for questions; add --yes")

    def activate(saved: Mapping[str, Any]) -> bool:
        link.ensure(home)
        return configuration.activate(home, saved)

    return _Setup(home, console, given, activate).run()


class _Setup:
    def __init__(
        self, home: Path, console: Console, given: Given, activate: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        self._home, self._console, self._given, self._activate = home, console, given, activate
        self._dialogue = Dialogue(console)
        self._settings = load(home)
        self._server = database_choice.server_of(self._settings, home)
        self._fixed = configuration.exported(home, ("dsn", *KEYS))

    def run(self) -> int:
        """Ask, try, save, activate, and prove it. Until it is saved an interruption leaves everything as it was."""
        ran = self._server is not None and self._server.status().running
        try:
            database, embedder = self._choose()
            applied, active = self._set_up(database, embedder)
        except BaseException as error:
            if self._server is not None and not ran and self._server.status().running:
                self._server.stop()
            if isinstance(error, KeyboardInterrupt):
                self._console.say("\nCancelled. Nothing was saved; the settings are as they were.")
                return INTERRUPTED
            raise
        return self._prove(database, embedder, applied, active)

    # Choosing

    def _choose(self) -> tuple[DatabaseChoice, EmbedderChoice]:
        if not self._given.yes:
            self._console.say("A memory in Postgres, with pgvector. Ctrl-C leaves everything as it is.\n")
        for key in self._fixed:
            self._console.say(f"! {ENV_PREFIX}{key.upper()} of the environment counts before what is saved")
        database = self._choose_database()
        return database, self._choose_embedder(database)

    def _choose_database(self) -> DatabaseChoice:
        dsn = self._given.dsn
        if dsn is None and not self._given.embedded and (self._given.yes or "dsn" in self._fixed):
            dsn = self._settings.dsn.get_secret_value()
        if dsn:
            return database_choice.own(dsn, self._settings, self._console)
        if self._given.embedded or self._given.yes:
            return database_choice.embedded(self._settings, self._server, self._console)
        return DatabaseQuestions(self._settings, self._server, self._dialogue, self._console).ask()

    def _choose_embedder(self, database: DatabaseChoice) -> EmbedderChoice:
        settings = changed(self._settings, dsn=database.dsn)
        stored = database.found.stored if database.found else None
        given = {"embed_url": self._given.embed_url, "embed_model": self._given.embed_model}
        if given["embed_url"] == "" and given["embed_model"] is None:
            given["embed_model"] = ""  # the bundled model's; that of an endpoint means nothing without it
        named = {key: value for key, value in given.items() if value is not None}
        if not (named or self._given.yes or set(self._fixed) & {"embed_url", "embed_model"}):
            self._console.say("")
            return EmbedderQuestions(settings, stored, self._dialogue, self._console).ask()
        choice = tried(changed(settings, **named), {}, self._console)
        problem = misfit(choice, stored)
        if problem:
            raise SettingsError(problem)
        return choice

    # Doing

    def _set_up(self, database: DatabaseChoice, embedder: EmbedderChoice) -> tuple[list[str], bool]:
        self._console.say("")
        server = None if database.dsn else self._server
        values = {key: getattr(embedder.settings, key) for key in KEYS}
        secrets = {f"{ENV_PREFIX}DSN": database.dsn}
        if embedder.key:
            secrets[embedder.settings.embed_key_env] = embedder.key
        with Saved(self._home) as saved:
            with self._console.busy("making the database ready"):
                applied = database.prepare(server, embedder.dimensions, self._console)
            saved.save(values, secrets)
            active = self._activate({"dsn": "", **values})
            saved.check({"dsn": database.dsn, **values})
            if active and link.active_provider(self._home) != link.NAME:
                raise SettingsError(f"the host did not take memory.provider: set it yourself with: {link.ACTIVATE}")
            saved.keep()
        self._tell(saved, server, active)
        return applied, active

    def _tell(self, saved: Saved, server: EmbeddedServer | None, active: bool) -> None:
        if server is not None:
            self._console.say(f"✓ the embedded Postgres runs; its data is in {server.paths.data}")
        else:
            self._console.say(f"✓ the database's address is in {saved.env}")
        self._console.say(f"✓ the other settings are in {saved.config}")
        if active:
            self._console.say(f"✓ the host uses it from the next session on: memory.provider is {link.NAME}")
        else:
            self._console.say(f"! no host was found to tell; where it is, run: {link.ACTIVATE}")

    def _prove(self, database: DatabaseChoice, embedder: EmbedderChoice, applied: list[str], active: bool) -> int:
        problem, how = "", "not tried"
        if database.usable:
            try:
                with self._console.busy("storing, recalling and removing a memory"):
                    how, took_ms = trial.round_trip(self._home, load(self._home))
                self._console.say(_proof(how, took_ms))
            except KeyboardInterrupt:
                problem = "interrupted while it was tried out; it is set up all the same"
            except PgvectorError as error:
                problem = f"it is set up, but a memory could not be stored and recalled: {error}"
        if problem:
            self._console.say(f"✗ {problem}; see: hermes-pgvector doctor")
        self._console.data(
            {
                "database": database.found.where if database.dsn and database.found else "embedded server",
                "embed_model": embedder.model,
                "dimensions": embedder.dimensions,
                "applied": applied,
                "active": active,
                "recalled": how,
                "problem": problem,
            }
        )
        self._next_steps(embedder.settings, embedded=not database.dsn)
        return int(bool(problem) or how == "not")

    def _next_steps(self, settings: Settings, *, embedded: bool) -> None:
        fleet = (
            "to share the memory with other hosts, run this set-up again with a Postgres of your own"
            if embedded
            else "on each further host of the fleet: this set-up with the same database and the same model"
        )
        if settings.dsn.get_secret_value() and settings.embed_url.startswith(("http://127.", "http://localhost")):
            fleet += "; its embedder must have that model, too"
        lines = (
            "\nNext:",
            "  hermes                   a first chat; a running gateway must be restarted: hermes gateway restart",
            "  hermes pgvector status   what is stored, and what waits",
            f"  {fleet}",
        )
        for line in lines:
            self._console.say(line)


def _proof(how: str, took_ms: float) -> str:
    if how == "not":
        return "✗ a memory was stored and not recalled; see: hermes-pgvector doctor"
    return f"✓ a memory was stored, recalled by {how} in {took_ms:.0f} ms, and removed again"
