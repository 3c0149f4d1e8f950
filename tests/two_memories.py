"""The same memory on one Postgres and on a Citus cluster: the events that both get, and what must be equal in both."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import unified_diff
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from commandline import hermes_pgvector
from loopback import Endpoint
from psycopg.conninfo import make_conninfo

from hermes_memory_pgvector.model import Add, Caller, Event, Recall, RecallRequest, Scope, TurnTaken, Update
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import entries, upkeep
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.text.theme_names import RESERVED_PATTERN
from hermes_memory_pgvector.tools import toolset

BEGIN = datetime(2026, 1, 2, tzinfo=UTC)
# Events are older; what is younger is the clock's time of a test.
END = datetime(2026, 3, 1, tzinfo=UTC)
WORDS = [
    "copper", "bridge", "winter", "ledger", "harbour", "lantern", "orchard", "signal", "velvet", "quartz", "meadow",
    "anchor", "saddle", "thunder", "ivory",
]  # fmt: skip


def told_at(column: str) -> str:
    """The time of an event; null for a time that a server took from its clock."""
    return f"case when {column} < '{END}' then {column} end"


# All but the ids and the times of the servers' clocks, which differ.
ROWS = {
    "memory_entries": "agent_identity, home, target, content, embedding::text, search::text, metadata, tags,"
    f" expires_at, created_at, {told_at('updated_at')}, cardinality(replaces)",
    "conversations": "agent_identity, session_id, parent_session_id, role, content, ts, embedding::text, search::text,"
    " metadata - 'replayed', metadata ? 'replayed'",
    "facts": "agent_identity, kind, target, scope, content, status, superseded_by is null, uses, session_id,"
    f" embedding::text, search::text, metadata, {told_at('written_at')}, {told_at('used_at')}",
    "memory_entry_pieces": "agent_identity, piece, embedding::text",
    "conversation_pieces": "agent_identity, piece, embedding::text",
    "fact_pieces": "agent_identity, piece, embedding::text",
    "fact_scopes": f"agent_identity, label, session_id, turn, silent, closed_at is null, {told_at('written_at')}",
    "memory_history": "agent_identity, home, target, content, metadata, how, session_id, replaced_by, tags, expires_at,"
    f" created_at, {told_at('updated_at')}, {told_at('gone_at')}",
    "memory_events": "agent_identity, event_id",
    "memory_tombstones": "agent_identity, home, target, content_key, at",
    "memory_withdrawals": "agent_identity, session_id, role, content_key, at, standing, sessions",
    "memory_pruned_turns": "agent_identity, session_id, content_key, times",
    "memory_agent_edges": "agent_identity, event_id, parent_session_id, child_session_id, task, result, at, metadata",
    "memory_agents": f"agent_identity, session_id, kind, {told_at('first_seen')}, {told_at('last_seen')}, metadata",
    "memory_words": "agent_identity, kind, word, rows",
    "memory_person_links": "agent_identity, person",
    "memory_renames": "agent_identity, theme",
    "memory_erasures": "agent_identity, kind, dropped",
}  # fmt: skip


class Two:
    """A memory on one Postgres, and one on a cluster as the role of agents, which get the same events."""

    def __init__(self, folder: Path, plain: str, cluster: str, role: str, **settings: Any) -> None:
        self.dsns = [plain, cluster]
        self.runtimes: list[Runtime] = []
        for name, dsn in (("plain", plain), ("cluster", make_conninfo(cluster, user=role))):
            home = made_home(folder / name)
            # Vectors that come late, on a busy machine, are made with the texts around that the row has by then.
            values = {"embed_model": "test", "embed_wait_s": 20, "batch_linger_s": 0, "tools": "all", **settings}
            runtime = acquire(Settings(dsn=dsn, **values), home)
            assert runtime.wait_ready(20)
            self.runtimes.append(runtime)

    def databases(self) -> Iterator[Database]:
        """Both as the tables' owner, who may do all that commands do."""
        for dsn, runtime in zip(self.dsns, self.runtimes, strict=True):
            database = Database(Settings(dsn=dsn), runtime.home.path)
            with database.connection(10) as connection:
                database.verify(connection)
            yield database
            database.close()

    def accept(self, *events: Event) -> None:
        """Have both store the events, each in as many batches as it takes."""
        for runtime in self.runtimes:
            for event in events:
                assert runtime.accept(event)
        self.flush()

    def flush(self) -> None:
        for runtime in self.runtimes:
            # Not `flush`: whom it hurries does not wait for vectors.
            runtime.writer.wake()
            until = time.monotonic() + 120
            while runtime.writer.counters.pending:
                assert time.monotonic() < until, runtime.writer.health
                time.sleep(0.01)
            counters = runtime.writer.counters
            assert counters.set_aside == 0, counters

    def correct(self, old: Add, event: Update | Add) -> None:
        """Have both correct an entry, whose id is another one in each."""
        for runtime, number in zip(self.runtimes, self._ids(old), strict=True):
            named = {"entry_id": number} if isinstance(event, Update) else {"supersedes": number}
            assert runtime.accept(replace(event, **named))
        self.flush()

    def forget(self, entry: Add) -> None:
        """Have the agent of both forget an entry."""
        caller = Caller(theme=entry.theme, session_id="later")
        for runtime, number in zip(self.runtimes, self._ids(entry), strict=True):
            assert "error" not in toolset.call(runtime, "forget", {"id": number}, caller)

    def _ids(self, entry: Add) -> Iterator[int]:
        """The id of an entry in each."""
        for runtime in self.runtimes:
            with runtime.database.connection(10) as connection:
                row = entries.entry_with(connection, entry.theme, entry.target, entry.content)
            assert row is not None
            yield row.id

    def same_rows(self) -> dict[str, int]:
        """Assert that both have the same rows; returns how many."""
        found = [rows(dsn) for dsn in self.dsns]
        for table, lines in found[0].items():
            equal("\n".join(lines), "\n".join(found[1][table]), table)
        return {table: len(lines) for table, lines in found[0].items()}

    def count_words(self, rows_min: int) -> None:
        """Count the words of all themes of more rows, in both."""
        for database in self.databases():
            with database.transaction(10, 10) as connection:
                connection.execute("delete from memory_words")
                while upkeep.count_words(connection, rows_min, RESERVED_PATTERN):
                    pass

    def words(self, query: str, scope: Scope) -> list[float]:
        """The scores by words of what each finds, added up."""
        request = RecallRequest(query=query, scope=scope, limit=10, budget_s=20)
        return [sum(hit.words for hit in runtime.recall("turns", request).hits) for runtime in self.runtimes]

    def tools(self, query: str, theme: str) -> int:
        """Assert that the agent's tools and memories before a turn are the same, apart from ids."""
        found = 0
        given = {"query": query}
        for name, values in (("recall_memory", given), ("recall_conversation", given), ("list_memories", {"limit": 4})):
            answers = [toolset.call(runtime, name, values, Caller(theme=theme)) for runtime in self.runtimes]
            plain, cluster = map(comparable, answers)
            equal(plain, cluster, (name, theme))
            found += plain.count('"content"')
        texts = [
            runtime.prefetch.text_before_turn(theme, query, "another", False, runtime.own(theme))
            for runtime in self.runtimes
        ]
        equal(*texts, "before a turn")
        return found

    def command(self, environment: pytest.MonkeyPatch, *command: str) -> list[str]:
        """Run a command for both; returns what each has shown, apart from ids and the time of the test."""
        shown = []
        for dsn, runtime in zip(self.dsns, self.runtimes, strict=True):
            environment.setenv("HERMES_PGVECTOR_DSN", dsn)
            home = made_home(runtime.home.path.with_name(f"operator of {runtime.home.path.name}"))
            done = hermes_pgvector("--home", str(home), *command)
            assert done.code in {0, 3}, (command, done.shown)
            assert "cannot do it" not in done.shown, (command, done.shown)
            shown.append(comparable(done.out))
        return shown

    def recall(self, kind: Any, query: str, scope: Scope, limit: int = 10, context: int = 0) -> int:
        """Assert that both find the same hits; returns how many texts these have."""
        request = RecallRequest(query=query, scope=scope, limit=limit, budget_s=20, context=context)
        plain, cluster = (runtime.recall(kind, request) for runtime in self.runtimes)
        assert told(cluster) == told(plain), (kind, query, scope)
        return len(plain.texts)

    def recalls(self, events: Events) -> int:
        """Ask both in one theme, in a session, in several themes and in all; returns how many texts they have found."""
        found, own = 0, events.themes[0]
        for theme in events.themes:
            query = events.words(3)
            found += self.recall("turns", query, Scope(theme, (theme,)), context=1)
            found += self.recall("entries", query, Scope(theme, (theme,)))
            found += self.recall("turns", query, Scope(theme, (theme,), f"{theme}-1"))
        for theme in events.themes[:4]:
            found += self.tools(events.words(3), theme)
        for kind in ("turns", "entries", "facts"):
            for themes in (tuple(events.themes[:5]), tuple(events.themes), None):
                found += self.recall(kind, events.words(3), Scope(own, themes))
        since = BEGIN + timedelta(minutes=2)
        found += self.recall("turns", events.words(3), Scope(own, tuple(events.themes[:3]), since=since, role="user"))
        found += self.recall("entries", events.words(3), Scope(own, tuple(events.themes[:3]), tags=("red",)))
        return found


@contextmanager
def started(folder: Path, plain: str, cluster: str, role: str, endpoint: Endpoint) -> Iterator[Callable[..., Two]]:
    """Start memories with some settings on these two databases; they are closed afterwards."""
    running: list[Two] = []

    def make(**settings: Any) -> Two:
        running.append(Two(folder, plain, cluster, role, embed_url=endpoint.url, **settings))
        return running[-1]

    yield make
    for two in running:
        for runtime in two.runtimes:
            release(runtime)


@dataclass
class Events:
    """Events in some themes, of some homes; the same for a seed."""

    themes: Sequence[str]
    homes: Sequence[str]
    rng: random.Random

    @classmethod
    def of(cls, seed: int, size: tuple[int, int]) -> Events:
        """Those of a number of themes and a number of homes."""
        themes, homes = size
        return cls([f"theme-{place}" for place in range(themes)], [f"{place:032x}" for place in range(homes)],
                   random.Random(seed))  # fmt: skip

    def id(self) -> str:
        return UUID(int=self.rng.getrandbits(128)).hex

    def words(self, count: int) -> str:
        return " ".join(self.rng.sample(WORDS, count))

    def turns(self, themes: Sequence[str] = (), count: int = 8) -> list[TurnTaken]:
        """Turns in each theme, in two sessions."""
        made: list[TurnTaken] = []
        for theme in themes or self.themes:
            for place in range(count):
                at = BEGIN + timedelta(seconds=2 * len(made))
                made.append(TurnTaken(
                    id=self.id(), theme=theme, home=self._home(place), session_id=f"{theme}-{place % 2}", at=at,
                    user=f"{self.words(5)} {place}?", assistant=f"{self.words(5)} {place}.",
                ))  # fmt: skip
        return made

    def entries(self) -> list[Add]:
        """Eight entries in each theme, of all homes."""
        made: list[Add] = []
        for theme in self.themes:
            for place in range(8):
                made.append(Add(
                    id=self.id(), theme=theme, home=self._home(place), at=BEGIN + timedelta(seconds=2 * len(made)),
                    target="user" if place == 5 else "memory", content=f"{theme} note {place}: {self.words(6)}",
                    tags=("red",) if place == 1 else None, metadata={"origin": "remember"} if place == 1 else {},
                ))  # fmt: skip
        return made

    def _home(self, place: int) -> str:
        return self.homes[place % len(self.homes)]


def made_home(path: Path) -> Path:
    """A home whose id is the same for both."""
    (path / "pgvector").mkdir(mode=0o700, parents=True, exist_ok=True)
    (path / "pgvector" / "home_id").write_text("e" * 32)
    return path


def rows(dsn: str) -> dict[str, list[str]]:
    """The rows of a database, by table."""
    with psycopg.connect(dsn) as connection:
        return {
            table: sorted(map(repr, connection.execute(f"select {columns} from {table}".encode())))
            for table, columns in ROWS.items()
        }


def told(found: Recall) -> tuple[list[Any], tuple[str, ...]]:
    """What a recall says, without the ids, which differ, and without the time of the test."""
    hits = [
        (hit.theme, hit.content, round(hit.score, 6), hit.session_id, hit.role, hit.target, hit.tags, hit.said,
         hit.alike, hit.at if hit.at < END else None, hit.similarity and round(hit.similarity, 6),
         round(hit.words, 6), hit.matched, hit.side and hit.side.content, [near.content for near in hit.context])
        for hit in found.hits
    ]  # fmt: skip
    return hits, found.degraded


def equal(plain: str, cluster: str, of: object) -> None:
    """Assert that both have said the same."""
    assert cluster == plain, "\n".join([f"{of}:", *unified_diff(plain.splitlines(), cluster.splitlines(), n=2)])


def comparable(text: str) -> str:
    """A text without the ids of rows, durations, and the time of the test, which differ."""
    numbers = "id|entry_id|next|bytes|legs_ms|hits_ms|embed_ms"
    text = re.sub(rf'("(?:{numbers})": )[\d.]+|(/(?:entry|turn|fact)/)\d+', r"\1\2 0", text)
    return re.sub(rf"{datetime.now(UTC):%Y-%m}-\d\d[T ][\d:.+]*Z?", "TIME", text)
