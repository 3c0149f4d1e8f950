"""setup: choose a database and an embedder, create the tables, save the settings, and test the result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from ...embedding.compatibility import EMBEDDER_SETTINGS
from ...errors import PgvectorError, SettingsError
from ...files import reason
from ...hosts.config import config_file, variable
from ...hosts.environment import ACTIVATE
from ...session.themes import trial_theme
from ...settings import load
from ...store.embedded.server import EmbeddedServer, available
from ...text.theme_names import DEFAULT_THEME
from .. import configuration, link
from ..configuration import PROVIDER, active_provider
from ..console import Console, counted
from ..database import connection, running, wait_ready
from ..embedder import mismatch, mismatch_remedy
from ..host_record import IMPORT_SESSIONS, STATEMENT_S_MAX, past_sessions
from ..imports.command import bring
from ..round_trip import round_trip
from .database import DatabaseChoice, DatabaseChooser
from .embedder import EmbedderChoice, EmbedderQuestions, changed, tried

# What `wizard` passes for the arguments that answer questions of the `setup` command in advance.
NOTHING_GIVEN = argparse.Namespace(embedded=False, dsn=None, embed_url=None, embed_model=None, yes=False)


def wizard(hermes_home: str, config: MutableMapping[str, Any]) -> None:
    """The host's `hermes memory setup pgvector`; `config` is the host's configuration, which is changed and saved.

    Raises SystemExit when there is no terminal.
    """
    home = Path(hermes_home).expanduser().resolve()
    console = Console(False, home)
    try:
        _Setup(home, console, NOTHING_GIVEN, config).run()
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            # A host that runs plugins in a process of their own shows this message only.
            raise SystemExit("there is no terminal to ask questions in; run: hermes-pgvector setup") from None
    except PgvectorError as error:
        console.say(f"✗ {error}")
        console.say("Nothing was saved; the settings are as they were.")


def setup(home: Path, console: Console, args: argparse.Namespace) -> int:
    """The `setup` command; unlike `wizard` it also links the plugin into the home.

    Returns 1 when the test of the result failed. Raises BadArgument, SettingsError, and KeyboardInterrupt after Ctrl-C.
    """
    console.check_consent(args)
    return _Setup(home, console, args).run()


class _Setup:
    """One run of the set-up; `config` is the configuration of the host that runs it."""

    def __init__(
        self, home: Path, console: Console, args: argparse.Namespace, config: MutableMapping[str, Any] | None = None
    ) -> None:
        self._home, self._console, self._given, self._config = home, console, args, config
        self._settings = load(home)
        self._server = EmbeddedServer(home, self._settings.data_dir) if available() else None
        self._fixed = configuration.exported(home, ("dsn", *EMBEDDER_SETTINGS))

    @property
    def _links(self) -> bool:
        """Whether the plugin is found by links; a host that runs this may have found it by its entry point."""
        return self._config is None or link.linked(self._home)

    def run(self) -> int:
        """Choose, create the tables, save, and test. An error before the end of saving changes no setting."""
        if self._links:
            link.due(self._home)  # raises before anything is asked, or made in the database
        with ExitStack() as on_failure:
            if self._server is not None and not self._server.status().running:
                on_failure.callback(self._server.stop)
            try:
                database, embedder = self._choose()
                result = self._set_up(database, embedder)
            except KeyboardInterrupt:
                self._console.say("\nCancelled. Nothing was saved; the settings are as they were.")
                raise
            on_failure.pop_all()
        how, problem = self._try_out() if database.usable else ("not tried", "")
        if problem:
            self._console.say(f"✗ {problem}; see: hermes-pgvector doctor")
        embedded = database.server is not None
        past = self._past_sessions(embedded=embedded) if how != "not tried" else 0
        self._console.data({**result, "recalled": how, "problem": problem, "past_sessions": past})
        self._next_steps(past, embedded=embedded)
        return int(bool(problem))

    # Choosing

    def _choose(self) -> tuple[DatabaseChoice, EmbedderChoice]:
        if not self._given.yes:
            self._console.say("Set up a memory in Postgres with pgvector. Ctrl-C cancels and changes nothing.\n")
        for key in self._fixed:
            self._console.say(f"! {variable(key)} of the environment takes precedence over what is saved")
        database = self._choose_database()
        return database, self._choose_embedder(database)

    def _choose_database(self) -> DatabaseChoice:
        dsn = self._given.dsn
        if dsn is None and not self._given.embedded and (self._given.yes or "dsn" in self._fixed):
            dsn = self._settings.dsn.get_secret_value()
        chooser = DatabaseChooser(self._settings, self._server, self._console)
        if dsn:
            return chooser.own(dsn, ask=False)
        return chooser.embedded() if self._given.embedded or self._given.yes else chooser.ask()

    def _choose_embedder(self, database: DatabaseChoice) -> EmbedderChoice:
        settings = changed(self._settings, dsn=database.dsn)
        stored = database.found.stored if database.found else None
        given = {"embed_url": self._given.embed_url, "embed_model": self._given.embed_model}
        if given["embed_url"] == "" and given["embed_model"] is None:
            given["embed_model"] = ""  # the name of an endpoint's model is of no use without the endpoint
        named = {key: value for key, value in given.items() if value is not None}
        if not (named or self._given.yes or set(self._fixed) & {"embed_url", "embed_model"}):
            self._console.say("")
            return EmbedderQuestions(settings, stored, self._console).ask()
        choice = tried(changed(settings, **named), {}, self._console, stored.embedding_model if stored else None)
        problem = mismatch(choice.model, choice.dimensions, stored)
        if problem:
            remedy = mismatch_remedy(choice.settings, choice.model, stored)
            raise SettingsError(f"{problem}; {remedy}")
        return choice

    # Doing

    def _set_up(self, database: DatabaseChoice, embedder: EmbedderChoice) -> dict[str, Any]:
        """Create the tables, save and activate. Returns what was done."""
        values = {key: getattr(embedder.settings, key) for key in EMBEDDER_SETTINGS}
        secrets = {variable("dsn"): database.dsn, **embedder.secrets}
        with configuration.restored_on_error(self._home):
            with self._console.busy("preparing the database"):
                applied = database.prepare(embedder.dimensions, self._console)
            configuration.save(self._home, values, secrets)
            active = self._activate({"dsn": "", **values})
            configuration.check_saved(self._home, {"dsn": SecretStr(database.dsn), **values})
            if active and active_provider(self._home) != PROVIDER:
                raise configuration.not_saved(self._home, PROVIDER)
        where = f"the address of the database is saved in {self._home / '.env'}"
        if database.server:
            where = f"the embedded Postgres is running; its data is in {database.server.paths.data}"
        self._console.say(f"\n✓ {where}")
        self._console.say(f"✓ the other settings are saved in {config_file(self._home)}")
        if active:
            self._console.say(f"✓ memory.provider is {PROVIDER}; the host uses it from the next session on")
        else:
            self._console.say(f"! no hermes was found here; to activate the memory, run: {ACTIVATE}")
        return {
            "database": database.found.where if database.dsn and database.found else "embedded server",
            "embed_model": embedder.model,
            "dimensions": embedder.dimensions,
            "applied": applied,
            "active": active,
        }

    def _activate(self, saved: Mapping[str, Any]) -> bool:
        """Make the host use the plugin, without the settings that it has for it; False when there is no host."""
        if self._links:
            link.change(self._home)
        if self._config is None:
            return configuration.activate(self._home, saved)
        configuration.activate_in_host(self._config, saved)
        return True

    def _try_out(self) -> tuple[str, str]:
        """By which search an entry was recalled, and what is wrong."""
        try:
            with self._console.busy("storing, recalling and removing an entry"):
                how, took_ms = self._round_trip()
        except KeyboardInterrupt:
            return "not tried", "the test was interrupted; the settings are saved"
        except PgvectorError as error:
            return "not tried", f"the settings are saved, but an entry could not be stored and recalled: {error}"
        if how == "not":
            return how, "an entry was stored but not recalled"
        self._console.say(f"✓ an entry was stored, recalled by {how} in {took_ms:.0f} ms, and removed again")
        return how, ""

    def _round_trip(self) -> tuple[str, float]:
        settings = load(self._home)
        theme = trial_theme(DEFAULT_THEME, settings)
        with running(settings, self._home) as runtime:
            wait_ready(runtime)
            return round_trip(runtime, theme)

    def _past_sessions(self, *, embedded: bool) -> int:
        """Offer to store what was said before. Returns how many sessions are left that could be."""
        past = 0
        try:
            with connection(self._home, STATEMENT_S_MAX) as opened:
                past = past_sessions(load(self._home), self._home, opened)
            if not past or self._given.yes:
                return past
            question = f"\nThe host has {counted(past, 'session')} from before. Store their turns, to be recalled, too?"
            if not self._console.confirm(question, default=embedded):
                return past
            given = argparse.Namespace(source="state-db", path=str(self._home), theme="", dry_run=False)
            bring(self._home, self._console, given)
            return 0
        except KeyboardInterrupt:
            self._console.say("\nThe past sessions are not stored, or not all; the settings are saved.")
        except (OSError, PgvectorError) as error:
            why = reason(error) if isinstance(error, OSError) else error
            self._console.say(f"✗ the past sessions are not stored: {why}; the settings are saved")
        return past

    def _next_steps(self, past: int, *, embedded: bool) -> None:
        fleet = "on other hosts: run this set-up with the same database and the same model"
        if embedded:
            fleet = "to share the memory with other hosts, run this set-up again with a Postgres of your own"
        self._console.say("\nNext:")
        self._console.say("  hermes                   start a chat; restart a running gateway: hermes gateway restart")
        self._console.say("  hermes pgvector status   see what is stored and what waits")
        if past:
            self._console.say(f"  {IMPORT_SESSIONS}   store the {counted(past, 'session')} from before")
        self._console.say(f"  {fleet}")
