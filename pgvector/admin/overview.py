"""A look at the database that never waits long and changes nothing; `status` and `doctor` both start from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import PgvectorError, explained
from ..model import Scope
from ..recall.recaller import LEG_LIMIT
from ..recall.vector_search import Agreement, agreement
from ..settings import Settings
from ..store import statistics
from ..store.connection.database import Connection, Database
from ..store.connection.dsn import reachable
from ..store.embedded.server import ServerStatus
from ..store.retrieval import Where
from ..store.schema import verification
from ..store.statistics import Facts, ThemeTotals, Totals

COUNT_S_MAX = 30.0
QUESTIONS, SAMPLE_S_MAX = 10, 3.0
STOPPED = "the embedded server does not run; it starts with the next session, or now with: hermes-pgvector server start"


@dataclass
class Survey:
    """What was found, as far as it got. `problem` says why it got no further; empty when all is there."""

    where: str
    server: ServerStatus | None = None
    seconds: float | None = None
    facts: Facts | None = None
    schema: verification.SchemaState | None = None
    totals: Totals | None = None
    themes: tuple[ThemeTotals, ...] = ()
    person_key: str = ""
    agreement: Agreement | None = None
    problem: str = ""

    @property
    def reachable(self) -> bool:
        """Whether a connection was made."""
        return self.seconds is not None


def survey(settings: Settings, home: Path, *, themes_max: int, sampled: bool = False) -> Survey:
    """Look at the database of a home; `themes_max` of its themes are counted. Raises SettingsError when it has none.

    With `sampled`, some questions are made up to compare the graph index over all turns with exact search.
    """
    database = Database(settings, home)
    found = Survey(database.label)
    try:
        if database.server is not None:
            found.server = database.server.status()
            if not found.server.running:
                found.problem = STOPPED
                return found
        answers, why, seconds = reachable(database.dsn, settings.connect_timeout_s)
        if not answers:
            found.problem = f"Postgres does not answer: {why}"
            return found
        found.seconds = seconds
        with database.connection(settings.connect_timeout_s) as connection:
            found.facts = statistics.facts(connection)
            found.schema = database.verify(connection)
        found.person_key = database.claim_person_key("")
        with database.transaction(settings.connect_timeout_s, COUNT_S_MAX) as connection:
            _count(found, connection, themes_max)
            if sampled and found.totals:
                everything = Where("turns", Scope("", None))
                found.agreement = agreement(
                    connection,
                    everything,
                    LEG_LIMIT,
                    rows=found.totals.turns,
                    questions=QUESTIONS,
                    within_s=SAMPLE_S_MAX,
                )
    except PgvectorError as error:
        found.problem = explained(error)
    finally:
        database.close()
    return found


def _count(found: Survey, connection: Connection, themes_max: int) -> None:
    found.totals = statistics.totals(connection)
    if themes_max:
        found.themes = tuple(statistics.themes(connection, themes_max))
