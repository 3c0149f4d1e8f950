"""Reads the database without the plugin."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

STORED_S_MAX = 20


@dataclass(frozen=True)
class Rows:
    """The tables behind a DSN."""

    dsn: str

    def __call__(self, statement: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.dsn, row_factory=namedtuple_row) as connection:
            return connection.execute(statement, values).fetchall()

    def turns(self, theme: str | None = None) -> list[Any]:
        """Rows of conversations, oldest first."""
        return self(
            "SELECT agent_identity AS theme, session_id AS session, role, content, embedding IS NOT NULL AS embedded, "
            "metadata FROM conversations WHERE %s::text IS NULL OR agent_identity = %s ORDER BY ts, id", theme, theme
        )  # fmt: skip

    def entries(self, target: str | None = None, theme: str | None = None) -> list[str]:
        """The contents of memory entries, oldest first."""
        rows = self(
            "SELECT content FROM memory_entries WHERE (%s::text IS NULL OR target = %s) "
            "AND (%s::text IS NULL OR agent_identity = %s) ORDER BY created_at, id", target, target, theme, theme
        )  # fmt: skip
        return [row.content for row in rows]

    def said(self, theme: str | None = None) -> list[str]:
        """The contents of turns."""
        return [row.content for row in self.turns(theme)]

    def wait(self, condition: Callable[[Rows], bool], *, timeout_s: float = STORED_S_MAX) -> None:
        """Wait until the rows satisfy a condition."""
        deadline = time.monotonic() + timeout_s
        while not condition(self):
            if time.monotonic() > deadline:
                raise AssertionError(f"within {timeout_s:g} s not so; turns: {self.said()}, entries: {self.entries()}")
            time.sleep(0.1)

    def connections(self) -> int:
        """The number of other connections to the database."""
        counted = self(
            "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(counted[0].n)

    def text(self) -> str:
        """Every row of every table as one text, to search for what must not be in it."""
        names = [row.name for row in self("SELECT c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = "
                                          "c.relnamespace WHERE c.relkind = 'r' AND n.nspname = 'public'")]  # fmt: skip
        return "\n".join(row.row for name in names for row in self(f'SELECT t::text AS row FROM "{name}" t'))
