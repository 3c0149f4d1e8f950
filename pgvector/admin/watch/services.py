"""Whether what the memory needs works: the database, its schema, the embedder, and the processes that store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ...embedding import factory
from ...errors import PgvectorError, SchemaNotApplied, SettingsError, explained
from ...mirror.home import Home
from ...model import now
from ...outbox.inspection import Backlog, Process
from ...settings import Settings
from ...store.connection.database import Connection, Database
from ...store.diagnosis import Locked, health, waiting_briefly
from ...store.embedded import identity
from ...store.embedded.server import EmbeddedServer
from ...store.schema.verification import SchemaState
from .. import processes, refusal
from ..console import counted, duration
from ..database import start_server
from ..disk import disk
from ..embedder import PROBE, mismatch, mismatch_remedy
from .finding import Finding

RETRY_S = 3.0
DOCTOR = "hermes-pgvector doctor"


def patiently(check: Callable[[], Finding | None]) -> Finding | None:
    """What a check finds. One that finds something is made again after `RETRY_S` seconds: it may be a blip."""
    if check() is None:
        return None
    time.sleep(RETRY_S)
    return check()


def database(settings: Settings, home: Path, use: Callable[[Connection, SchemaState], None]) -> Finding | None:
    """Connect, verify the schema and `use` the connection. A server of the home that is stopped is started."""
    try:
        opened = Database(settings, home)
    except SettingsError as error:
        return Finding("settings", str(error), DOCTOR)
    try:
        start_server(opened)
        with opened.connection() as connection:
            with waiting_briefly(connection):
                use(connection, opened.verify(connection))
                server = health(connection)
            if server.standby or server.read_only:
                return Finding("database", f"{opened.label} is read-only: nothing is stored there", DOCTOR)
    except Locked:
        return Finding("database", f"{opened.label}: tables are locked by another transaction", DOCTOR)
    except SchemaNotApplied as error:
        what, _, command = explained(error).partition("; run: ")
        return Finding("schema", what, command or DOCTOR)
    except PgvectorError as error:
        if opened.server and identity.absent(home / "pgvector", opened.server.paths.data):
            return None  # `data` tells it
        found = explained(error)
        start = "hermes-pgvector server start; until then events wait in the spool"
        remedy = start if opened.server else refusal.of_home(found, home)
        return Finding("database", f"{opened.label}: {found}", remedy)
    finally:
        opened.close()
    return None


def data(settings: Settings, home: Home) -> Finding | None:
    """Whether the embedded database is the one of before."""
    if settings.dsn.get_secret_value():
        return None
    try:
        folder = EmbeddedServer(home.path, settings.data_dir).paths.data
    except SettingsError:
        return None  # `database` tells it
    lost = identity.replaced(home.state, folder)
    return Finding("data", lost, identity.remedy(home.state, folder)) if lost else None


def embedder(settings: Settings, schema: SchemaState | None) -> Finding | None:
    """Ask the endpoint for a vector; the bundled model only has to be installed, if stored rows have vectors."""
    held = schema.embedding_model if schema else None
    try:
        chosen = factory.build(settings, held=held)
    except SettingsError as error:
        return Finding("embedder", f"recall searches by words only: {error}", DOCTOR) if held else None
    try:
        if settings.embed_url:
            chosen.embed_query(PROBE, settings.embed_timeout_s)
        problem = mismatch(chosen.model, chosen.dimensions, schema) if chosen.dimensions else ""
        return Finding("embedder", problem, mismatch_remedy(settings, chosen.model, schema)) if problem else None
    except PgvectorError as error:
        found = f"{chosen.model}: {error}; recall searches by words only"
        return Finding("embedder", found, "start it, or correct embed_url and embed_model")
    finally:
        chosen.close()


def stores(
    running: list[Process], waiting: Backlog, settings: Settings, spool: Path, *, wait_s_max: float
) -> Iterator[Finding]:
    """Stuck processes, a full disk of the spool, and events that have waited for longer than `wait_s_max` seconds."""
    for check in processes.troubled(running, settings.stuck_after_s):
        if check.verdict == "problem":
            yield Finding("writer", check.found, check.remedy)
    age_s = (now() - waiting.oldest).total_seconds() if waiting.oldest else 0.0
    if age_s > wait_s_max:
        found = f"{counted(waiting.events, 'event')} waiting, the oldest for {duration(age_s)}"
        yield Finding("spool", found, "hermes-pgvector spool flush")
    space = disk("disk", spool)
    if space.verdict == "problem":
        yield Finding("spool", space.found, space.remedy)
