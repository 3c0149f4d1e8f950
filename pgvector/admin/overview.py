"""A bounded, read-only look at a home's database and outbox, for `status`, `doctor`, metrics and the page."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.filesize import decimal as size

from ..errors import PgvectorError, explained
from ..mirror.home import Home
from ..outbox.dead_letters import DeadLetters
from ..outbox.inspection import Backlog, Process, processes, total
from ..outbox.pending_writes import PendingWrites
from ..session.themes import NOT_ALLOWED
from ..settings import Settings
from ..store import clients, statistics
from ..store.clients import Client
from ..store.connection.database import Database
from ..store.embedded import identity
from ..store.embedded.server import ServerStatus
from ..store.probe import StandbyFound, answer_seconds, standby
from ..store.schema.verification import SchemaState
from ..store.statistics import ServerInfo, ThemeTotals, Totals
from ..text.sanitize import safe_line
from ..write.retention import Quota, quotas
from .console import counted
from .limits import COUNT_S_MAX, limited

LETTERS_READ_MAX = 200
STOPPED = "the embedded server is stopped; the next session starts it, or: hermes-pgvector server start"
EARLIER = (
    "an earlier release started the embedded server; the next session lets agents in, or: hermes-pgvector server start"
)
ABSENT = "no embedded server yet; the first session creates it, or: hermes-pgvector server start"


@dataclass
class Overview:
    """What is known of a database. `problem` says why the rest is unknown; it is empty when everything is known.

    `seconds` is the time in which the database answered, `homes` are those with live processes. `standby` is what
    recalls are read from.
    """

    where: str
    server: ServerStatus | None = None
    seconds: float | None = None
    standby: StandbyFound | None = None
    server_info: ServerInfo | None = None
    schema: SchemaState | None = None
    totals: Totals | None = None
    themes: tuple[ThemeTotals, ...] = ()
    quotas: tuple[Quota, ...] = ()
    homes: tuple[Client, ...] = ()
    person_key: str = ""
    problem: str = ""

    @property
    def rows(self) -> str:
        """The numbers of rows and themes as text."""
        if self.totals is None:
            return "unknown"
        kinds = [counted(self.totals.entries, "entry", "entries"), counted(self.totals.turns, "turn")]
        if self.totals.facts:
            kinds.append(counted(self.totals.facts, "fact"))
        return f"{', '.join(kinds[:-1])} and {kinds[-1]} in {counted(self.totals.themes, 'theme')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The state of a home: its database, its processes, and what waits in its files.

    `pending` are writes that wait for approval, `refused_themes` those of dead letters that `allowed_themes` has not.
    """

    home: Home
    database: Overview
    processes: list[Process]
    waiting: Backlog
    dead_letters: int
    refused_themes: int
    pending: int
    stuck_after_s: float


def observed(settings: Settings, home: Path, *, themes_max: int) -> Observation:
    """The state of a home now. Raises SettingsError when the home has no database."""
    here = Home(home, settings)
    running, letters = processes(here.spool), DeadLetters(here.state)
    return Observation(
        home=here,
        database=overview(settings, here.path, themes_max=themes_max),
        processes=running,
        waiting=total(process.waiting for process in running),
        dead_letters=len(letters.ids()),
        refused_themes=_refused_themes(letters),
        pending=len(PendingWrites(here.state, settings).ids()),
        stuck_after_s=settings.stuck_after_s,
    )


def _refused_themes(letters: DeadLetters) -> int:
    """How many themes were refused, by the first of the dead letters."""
    found = (letter for letter in islice(letters, LETTERS_READ_MAX) if letter.reason == NOT_ALLOWED)
    return len({letter.event.theme for letter in found if letter.event})


def overview(settings: Settings, home: Path, *, themes_max: int) -> Overview:
    """The state of a home's database, with the `themes_max` largest themes. Starts no server, changes nothing.

    Raises SettingsError when the home has no database.
    """
    database = Database(settings, home)
    found = Overview(database.label)
    try:
        if database.server is not None:
            found.server = database.server.status()
            if not found.server.running:
                lost = identity.absent(home / "pgvector", found.server.data_dir)
                found.problem = lost or (STOPPED if found.server.account else ABSENT)
                return found
            if not database.server.admits_agents:
                found.problem = EARLIER
                return found
        found.seconds = answer_seconds(database.dsn, settings.connect_timeout_s)
        with database.connection() as connection:
            found.server_info = statistics.server_info(connection)
            found.schema = database.verify(connection)
            found.standby = standby(settings, database, connection)
        found.person_key = database.claim_person_key("")
        with limited(database, COUNT_S_MAX) as connection:
            found.totals = statistics.totals(connection)
            found.themes = tuple(statistics.themes(connection, themes_max)) if themes_max else ()
            found.quotas = tuple(quotas(connection, settings))
            found.homes = tuple(clients.live(connection))
    except PgvectorError as error:
        found.problem = explained(error)
    finally:
        database.close()
    return found


def quota_line(quota: Quota) -> str:
    """What a theme has of its quota, and what happens at it."""
    limits = [f"{counted(quota.entries + quota.turns, 'row')} of {quota.rows_max:,}"] if quota.rows_max else []
    if quota.bytes_max:
        limits.append(f"about {size(quota.bytes)} of {size(quota.bytes_max)}")
    what = "its oldest turns go for new ones" if quota.turns else "it has no turns that could go"
    return f"{safe_line(quota.theme, 40)} has {' and '.join(limits)}: {what}"
