"""The host's record of its sessions, written as a host does."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Record:
    """The host's state.db: as much of it as tells which messages stand."""

    def __init__(self, home: Path) -> None:
        self._file = sqlite3.connect(home / "state.db", isolation_level=None, check_same_thread=False)
        self._file.execute(
            "create table sessions (id text primary key, parent_session_id text, end_reason text, model_config text,"
            " started_at real, session_key text, rewind_count integer default 0)"
        )
        self._file.execute(
            "create table messages (id integer primary key, session_id text, role text, content text, tool_calls text,"
            " timestamp real, active integer default 1, compacted integer default 0)"
        )

    def say(self, session: str, turn: tuple[str, str], *, took_s: float = 0) -> None:
        """Write a turn. A compression takes no time between its sides, a person and an agent do."""
        at = time.time()
        sides = enumerate(zip(("user", "assistant"), turn, strict=True))
        rows = [(session, role, text, at + place * took_s) for place, (role, text) in sides]
        self._file.executemany("insert into messages (session_id, role, content, timestamp) values (?, ?, ?, ?)", rows)

    def copy(self, session: str, turn: tuple[str, str]) -> None:
        """Write a turn once more, with the times that it has."""
        self._file.execute(
            "insert into messages (session_id, role, content, timestamp) select session_id, role, content, timestamp"
            " from messages where session_id = ? and content in (?, ?) order by id",
            (session, *turn),
        )

    def result(self, session: str, text: str) -> None:
        """Write the result of a tool."""
        self._file.execute(
            "insert into messages (session_id, role, content, timestamp) values (?, 'tool', ?, ?)",
            (session, text, time.time()),
        )

    def keep_with_summary(self, session: str, answer: str, summary: str) -> None:
        """Write an answer once more, with its time and in one message with a summary, and mark it as taken back."""
        self._file.execute(
            "insert into messages (session_id, role, content, timestamp) select session_id, role, ?, timestamp"
            " from messages where session_id = ? and content = ?",
            (summary, session, answer),
        )
        self._file.execute("update messages set active = 0, compacted = 0 where content = ?", (answer,))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all others from reading, as a host does while it rewrites the file."""
        self._file.execute("begin exclusive")
        yield
        self._file.execute("commit")

    def call(self, session: str, times: int) -> None:
        """Write messages of an agent that call a tool."""
        self._file.execute(
            "with recursive calls (number) as (select 1 union all select number + 1 from calls where number < ?)"
            " insert into messages (session_id, role, content, tool_calls, timestamp)"
            " select ?, 'assistant', '', '[]', ? from calls",
            (times, session, time.time()),
        )

    def undo(self, session: str, turns: int = 1) -> None:
        self._file.execute("update sessions set rewind_count = rewind_count + 1 where id = ?", (session,))
        self._file.execute(
            "update messages set active = 0 where id in (select id from messages where session_id = ? and active = 1"
            " order by id desc limit ?)",
            (session, 2 * turns),
        )

    def rewrite(self, session: str) -> None:
        """Write what stands behind all else, with its times, as one host does before it asks a question again."""
        self._file.execute(
            "update messages set id = id + (select max(id) from messages) where session_id = ? and active = 1",
            (session,),
        )

    def compact(self, session: str) -> None:
        self._file.execute(
            "update messages set active = 0, compacted = 1 where session_id = ? and active = 1", (session,)
        )

    def begin(
        self, session: str, parent: str, *, end_reason: str = "", model_config: str = "{}", key: str | None = None
    ) -> None:
        """Begin a session after `parent`, which has ended for a reason, in the chat with this key."""
        self._file.execute("update sessions set end_reason = ? where id = ?", (end_reason, parent))
        values = (session, parent, model_config, time.time(), key)
        self._file.execute("insert into sessions values (?, ?, '', ?, ?, ?, 0)", values)

    def forget_parent(self, session: str) -> None:
        """Have a session begin without one, as hosts do when another process has ended the one before it."""
        self._file.execute("update sessions set parent_session_id = null where id = ?", (session,))
