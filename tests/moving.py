"""A memory whose themes are linked or renamed, the events of it, and the two ways of moving its rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from hermes_memory_pgvector.model import Add, Event, FactWritten, TurnTaken, Withdrawn
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import moves, person_links, renames, rows
from hermes_memory_pgvector.store.connection.database import Connection, Database
from hermes_memory_pgvector.store.passages import prepare

T = TypeVar("T")
PERSON = "dm-person-00000000000000aa"
PHONE, LAPTOP, ROOM = "dm-telegram-0123456789abcdef", "dm-discord-0123456789abcdef", "group-x-0123456789abcdef"
START = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
CONTENT = ("memory_entries", "conversations", "memory_history", "memory_entry_pieces", "conversation_pieces",
           "memory_agent_edges", "memory_agents", "facts", "fact_pieces", "fact_scopes")  # fmt: skip


class Memory:
    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.database = Database(Settings(dsn=dsn), folder)  # type: ignore[arg-type]

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.database.close()

    def apply(self, *events: Event) -> int:
        with self.database.transaction(10, 20) as connection:
            return rows.apply(connection, list(map(prepare, events)))

    def psql(self, statement: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def run(self, work: Callable[[Connection], T]) -> T:
        """The result of work in a transaction of its own."""
        with self.database.transaction(10, 20) as connection:
            return work(connection)

    def link(self, *accounts: str, person: str = PERSON) -> None:
        for account in accounts:
            with self.database.transaction(10, 20) as connection:
                person_links.link(connection, account, person)
            self.move(account, person, mark=account)

    def unlink(self, account: str) -> None:
        with self.database.transaction(10, 20) as connection:
            person_links.unlink(connection, account)

    def move(self, source: str, destination: str, **which: Any) -> int:
        batches = 0
        while True:
            with self.database.transaction(10, 20) as connection:
                if not moves.move(connection, source, destination, **which):
                    return batches
            batches += 1

    def contents(self, theme: str) -> list[str]:
        """Entries, then turns."""
        return [
            row[0]
            for table in ("memory_entries", "conversations")
            for row in self.psql(f"select content from {table} where agent_identity = %s order by id", theme)
        ]

    def left(self, theme: str) -> dict[str, int]:
        """The tables that hold anything that was said in a theme."""
        counts = {t: self.psql(f"select count(*) from {t} where agent_identity = %s", theme)[0][0] for t in CONTENT}
        return {table: count for table, count in counts.items() if count}


def turn(text: str, theme: str = PHONE, **more: Any) -> TurnTaken:
    return TurnTaken(theme=theme, home="h", session_id="s", user=f"{text}?", assistant=f"{text}!", **more)


def entry(text: str, theme: str = PHONE, **more: Any) -> Add:
    return Add(theme=theme, home="h", target="memory", content=text, **more)


def fact(content: str, theme: str = PHONE, **more: Any) -> FactWritten:
    return FactWritten(
        **{"scope": "bed", **more}, theme=theme, session_id="s", kind="V", target="soil", content=content
    )


NAMES = pytest.mark.parametrize(
    ("source", "place", "mark"), [(PHONE, PERSON, PHONE), ("old", "new", "")], ids=["link", "rename"]
)


def begin(memory: Memory, source: str, place: str, mark: str) -> None:
    """Link or rename, and move nothing yet."""
    change = person_links.link if mark else renames.rename
    with memory.database.transaction(10, 20) as connection:
        change(connection, source, place)


def withdrawn(theme: str, standing: int = 0) -> Withdrawn:
    taken_back = (("taken back?", "taken back!"),)
    return Withdrawn(theme=theme, home="h", session_id="s", turns=taken_back, standing=(standing,))
