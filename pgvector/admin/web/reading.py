"""What the page reads of a memory: in read-only transactions, and never a theme of a person unless that is allowed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from cachetools import TTLCache
from pydantic import SecretStr

from ...embedding import factory
from ...embedding.protocol import Embedder
from ...errors import BadArgument, DatabaseUnavailable, PgvectorError
from ...model import WORDS_ONLY, Recall, RecallRequest
from ...recall import recaller
from ...session.persons import Persons
from ...session.scopes import scope_of
from ...session.themes import allowed
from ...settings import Settings
from ...store.connection.database import Connection, Database
from ...store.queries import Kind
from ...store.schema.verification import SchemaState
from ...text.cleaning import clean
from ...text.sanitize import safe_line
from ...text.theme_names import reserved
from ..database import own_theme, theme_named
from ..embedder import PROBE, PROBE_S_MAX, mismatch
from ..limits import limited
from ..overview import EARLIER, STOPPED

STATEMENT_S_MAX = 15.0
BUDGET_S_MIN = 5.0
HITS_MAX = 20
T = TypeVar("T")


class Recent(Generic[T]):
    """A value that is made anew when it is older than `age_s_max`, by one thread while others wait."""

    def __init__(self, make: Callable[[], T], age_s_max: float) -> None:
        self._make, self._lock = make, threading.Lock()
        self._kept: TTLCache[str, T] = TTLCache(1, age_s_max)

    def value(self) -> T:
        """The value. Raises what making it raises."""
        with self._lock:
            kept = self._kept.get("value")
            if kept is None:
                kept = self._kept["value"] = self._make()
            return kept


class Reader:
    """Reads the memory of a home. Safe for any thread. With `persons` also the themes of persons and rooms."""

    def __init__(self, settings: Settings, home: Path, *, persons: bool) -> None:
        """Raises SettingsError when the home has no database."""
        self.settings, self.home, self.persons = settings, home, persons
        self._database = Database(settings, home, read_only=True)
        from_primary = settings.model_copy(update={"recall_dsn": SecretStr("")})
        self._recaller = recaller.build(self._database, self._usable, from_primary)
        self._lock, self._links = threading.Lock(), Persons()
        self._embedder: Embedder | None = None
        self._schema: SchemaState | None = None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A read-only transaction on a database with the right schema. Raises DatabaseUnavailable and others."""
        server = self._database.server
        if server is not None and not server.status().running:
            raise DatabaseUnavailable(STOPPED)
        if server is not None and not server.admits_agents:
            raise DatabaseUnavailable(EARLIER)
        with limited(self._database, STATEMENT_S_MAX) as reading:
            self._schema = self._database.verify(reading)
            yield reading

    def shows(self, theme: str) -> bool:
        """Whether the page may show a theme."""
        return self.persons or not reserved(theme)

    def theme(self, reading: Connection, name: str) -> str:
        """The stored theme of a name; for none that of the home. Raises BadArgument when the page may not show it."""
        theme = theme_named(reading, clean(name) or own_theme(self.home, self.settings), self.settings)
        if not self.shows(theme):
            raise BadArgument("this theme is of a person or a chat room; serve --persons shows those")
        return theme

    def search(self, query: str, name: str, scope: str) -> tuple[str, dict[Kind, Recall]]:
        """The theme that was searched as, and the hits of each kind. Raises BadArgument and Unavailable."""
        with self.transaction() as reading:
            theme = self.theme(reading, name)
            self._links.refresh(reading)
        if not allowed(theme, self.settings.allowed_themes):
            raise BadArgument(f"theme {safe_line(theme, 128)} is not in allowed_themes")
        request = RecallRequest(
            query=query,
            scope=self._links.scope(scope_of(theme, scope, "", self.settings)),
            limit=min(HITS_MAX, self.settings.recall_limit_max),
            budget_s=max(BUDGET_S_MIN, self.settings.recall_budget_s),
        )
        kinds: Sequence[Kind] = ("entries", "turns")
        return theme, dict(zip(kinds, self._recaller.recall_each(kinds, request), strict=True))

    def close(self) -> None:
        """Close connections and embedder."""
        self._database.close()
        self._recaller.close()
        if self._embedder is not None:
            self._embedder.close()

    def _usable(self) -> Embedder | str:
        """The embedder of the home, or why its vectors do not fit the database."""
        try:
            with self._lock:
                if self._embedder is None:
                    self._embedder = factory.build(self.settings)
            if self._embedder.dimensions is None:
                self._embedder.embed_query(PROBE, PROBE_S_MAX)
        except PgvectorError as error:
            return f"{WORDS_ONLY}: {error}"
        why = mismatch(self._embedder.model, self._embedder.dimensions, self._schema)
        return f"{WORDS_ONLY}: {why}" if why else self._embedder
