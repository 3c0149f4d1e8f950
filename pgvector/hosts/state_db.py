"""Reads the host's record of its sessions: messages that were taken back, and the sessions before a session.

The record is `state.db` in the home, an SQLite file. Both hosts keep messages that `/undo` took back as rows that are
neither active nor compacted.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .transcript import text_of

log = logging.getLogger("hermes.pgvector")

WAIT_S_MAX = 0.5
MESSAGES_MAX = 20_000
_ENCODED = "\0json:"

_MESSAGES = """
    select role, content, tool_calls, active = 0 and compacted = 0, compacted <> 0, timestamp
    from messages where session_id = ? and role in ('user', 'assistant') order by id limit ?"""
_PARENTS = """
    with recursive line (id, depth) as (
      select parent_session_id, 1 from sessions where id = ?
      union all
      select s.parent_session_id, depth + 1 from sessions s join line on s.id = line.id where depth < ?)
    select id from line where id <> ''"""


def messages(home: Path, session_id: str) -> list[dict[str, Any]]:
    """The messages of a session in order, at most 20,000; empty when there is no record.

    Each has `role`, `content`, `tool_calls`, whether it was `taken_back` and `compacted`, and when it was `written`, in
    seconds since 1970.
    """
    found = []
    for role, content, calls, gone, compacted, written in _read(home, _MESSAGES, (session_id, MESSAGES_MAX)):
        at = written if isinstance(written, int | float) else 0
        marks = {"taken_back": bool(gone), "compacted": bool(compacted), "written": at}
        found.append({"role": role, "content": _text(content), "tool_calls": calls, **marks})
    return found


def ancestors(home: Path, session_id: str, limit: int) -> tuple[str, ...]:
    """The sessions that a session continues, the nearest last; at most `limit`."""
    return tuple(str(row[0]) for row in reversed(_read(home, _PARENTS, (session_id, limit))))


def _text(content: Any) -> str:
    """The text of a recorded message; one with parts is JSON."""
    if isinstance(content, str) and content.startswith(_ENCODED):
        try:
            content = json.loads(content.removeprefix(_ENCODED))
        except (ValueError, RecursionError):
            return ""
    return text_of(content)


def _read(home: Path, statement: str, values: Sequence[object]) -> list[Any]:
    path = home / "state.db"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=WAIT_S_MAX)) as record:
            return record.execute(statement, values).fetchall()
    except sqlite3.Error as error:
        log.debug("state.db of the host cannot be read: %s", type(error).__name__)
        return []
