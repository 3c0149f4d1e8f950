"""A host's record of sessions that are over, made by hand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

_TABLES = """
    create table sessions (id text primary key, source text, parent_session_id text, model_config text, title text,
      end_reason text, chat_type text, chat_id text, thread_id text, user_id text, session_key text, origin_json text,
      profile_name text, started_at real, handoff_state text);
    create table messages (id integer primary key, session_id text, role text, content text, tool_calls text,
      timestamp real, active integer not null default 1, compacted integer not null default 0, display_kind text,
      api_content text)"""
SAID_AT = datetime(2025, 3, 4, 10, 0, tzinfo=UTC)


def turn(number: int) -> tuple[str, str]:
    return f"Tell me the history of bridge number {number} over the Aare.", f"Bridge {number} was built of stone."


class Record:
    """A host's `state.db` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.path = folder / "state.db"
        with closing(sqlite3.connect(self.path)) as database:
            database.executescript(_TABLES)

    def add(self, session: str, *messages: tuple[str, str]) -> None:
        """Add messages to a session, each as (role, text)."""
        with closing(sqlite3.connect(self.path)) as database, database:
            database.executemany(
                "insert into messages (session_id, role, content, timestamp) values (?, ?, ?, ?)",
                [(session, *message, SAID_AT.timestamp() + place) for place, message in enumerate(messages)],
            )

    def say(self, session: str, *numbers: int, active: bool = True, day: int = 0, **columns: str | float) -> None:
        named = {"id": session, "source": "cli", "model_config": "", "parent_session_id": "", **columns}
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute(
                f"insert or ignore into sessions ({', '.join(named)}) values ({', '.join('?' for _ in named)})",
                tuple(named.values()),
            )
            for number in numbers:
                for role, text in zip(("user", "assistant"), turn(number), strict=True):
                    values = (session, role, text, SAID_AT.timestamp() + 86400 * day + 60 * number, active)
                    statement = (
                        "insert into messages (session_id, role, content, timestamp, active) values (?, ?, ?, ?, ?)"
                    )
                    database.execute(statement, values)
