"""Reads the host's record of its sessions: messages that were taken back, and the sessions before a session.

The record is `state.db` in the home, an SQLite file. One host records the sessions of all profiles of a gateway in that
of the gateway's home. Both hosts keep messages that `/undo` took back as rows that are neither active nor compacted.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from ..errors import Unavailable
from .environment import in_gateway, process_home
from .record_copies import without_copies
from .runtime_messages import DELIVERED, STEERED, corrections
from .transcript import decoded, is_summary, since_handoff

log = logging.getLogger("hermes.pgvector")
Read: TypeAlias = Callable[..., list[Any]]

WAIT_S_MAX = 0.5
# Of a whole session, and of its end. The calls of tools count, too: an agent at work makes dozens in a turn.
MESSAGES_MAX, NEWEST_MAX = 200_000, 20_000
CORRECTED_MAX = 1000
# In seconds since 1970: no time of Python is later.
YEAR_10000 = 253_402_300_800
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_LINE_END = re.compile("\n")

_MESSAGES = """
    select id, role, content, tool_calls, active = 0 and compacted = 0, compacted <> 0, timestamp, {more}
    from messages where session_id = ? and role in ('user', 'assistant') order by id limit ?"""
# Columns that not every host has, and what is read of them.
_MORE = {"display_kind": "display_kind", "finish_reason": "finish_reason", "api_content": "substr(api_content, 1, 100)"}
# Why the messages of the agent end behind which its answer still comes. The host keeps its own requests for it back.
_GOES_ON = frozenset({"incomplete", "verification_required", "verify_hook_continue"})
_COLUMNS = "select name from pragma_table_info(?)"
_CORRECTED = """
    select id, content from messages
    where session_id = ? and role = 'tool' and active = 1 and instr(content, ?) order by id desc limit ?"""
_NEWEST_MESSAGES = _MESSAGES.replace("order by id", "order by id desc")
_IS_THERE = "select 1 from sessions where id = ?"
_BEGAN = "select started_at from sessions where id = ?"
_TAKEN_BACK = "select 1 from messages where session_id = ? and active = 0 and compacted = 0 limit 1"
# The sessions of a chat that end with messages that were taken back.
_REWOUND = """
    select id from sessions s where session_key = ? and rewind_count > 0
      and (select active = 0 and compacted = 0 from messages where session_id = s.id order by id desc limit 1)
    order by started_at desc limit ?"""
_TITLES = "select id, title from sessions where id in (select value from json_each(?))"
_ORIGIN = """
    select source as platform, session_key as gateway_session_key, chat_id, chat_type, thread_id, user_id
    from sessions where id = ? and (session_key <> '' or source = 'api_server')"""
_PARENTS = """
    with recursive line (id, depth) as (
      select parent_session_id, 1 from sessions where id = ?
      union all
      select s.parent_session_id, depth + 1 from sessions s join line on s.id = line.id where depth < ?)
    select id from line where id <> ''"""
# A branch, or what follows a compression. The sessions of child agents, and on one host those that began anew, have a
# parent, too.
_GOES_ON_FROM = """
    with recursive line (id, depth) as (
      select ?, 0
      union all
      select p.id, depth + 1
      from line join sessions s on s.id = line.id join sessions p on p.id = s.parent_session_id
      where depth < ? and {how}
        and coalesce(s.model_config, '') not like '%"_delegate_from"%'
        and coalesce(s.model_config, '') not like '%"_reset_from"%')
    select id from line"""
_IS_BRANCH = """coalesce(s.model_config, '') like '%"_branched_from"%'"""
_CONTINUED = _GOES_ON_FROM.format(how=f"(p.end_reason in ('compression', 'branched') or {_IS_BRANCH})")
_COMPRESSED = _GOES_ON_FROM.format(how=f"p.end_reason = 'compression' and not {_IS_BRANCH}")
# What follows a session of a chat that ended as a terminal was left which had gone on with it.
_LEFT = """
    select id from (
      select p.id, p.end_reason, s.model_config from sessions s join sessions p on p.session_key = s.session_key
      where s.id = ? and s.session_key <> '' and p.rowid < s.rowid order by p.rowid desc limit 1)
    where end_reason = 'cli_close' and coalesce(model_config, '') not like '%"_reset_from"%'"""
_RECENT = """
    select {columns}, max(m.timestamp) as latest, count(*) as recorded
    from messages m join sessions s on s.id = m.session_id
    where m.timestamp >= ? and m.role in ('user', 'assistant')
      and coalesce(s.model_config, '') not like '%"_delegate_from"%'
    group by s.id order by latest desc limit ?"""


def messages(home: Path, session_id: str, *, newest: bool = False, raises: bool = False) -> list[dict[str, Any]]:
    """The messages of a session, at most MESSAGES_MAX, or the `newest`, at most NEWEST_MAX, in order.

    Empty when there is no record. `raises` is whether Unavailable is raised while the host locks it. Left out are those
    of the agent that were delivered into the session, and the copies of a compression. Each has `id`, `role`,
    `content`, `tool_calls`, whether it was `taken_back` and `compacted`, when it was `written`, in seconds since 1970,
    and, on one host, its `display_kind` and how its `api_content` begins, which the model got.
    """
    found = _messages(home, session_id, newest=newest, read=_read_unlocked if raises else _read)
    return without_copies([message for message, delivered in found if not delivered])


def corrected(home: Path, session_id: str) -> list[tuple[int, list[str]]]:
    """What the results of tools in a session end with as corrections, which is perhaps forged: the newest ones first.

    Each has the `id` of the result, which counts up with those of `messages`.
    """
    rows = _of_session(home, session_id, _CORRECTED, STEERED, CORRECTED_MAX)
    return [(row[0], corrections({"role": "tool"}, decoded(row[1]))) for row in rows]


def own(home: Path, sessions: Iterable[str], messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """These messages of a chat since a handoff, without deliveries, as by a tool of another session or a job.

    Hosts record it as a message, of the agent or of the user, and later merge it with the one before or after it. What
    only repeats or quotes a delivery is in the record with it. `sessions` are the session and those that it continues:
    after a compression it begins with the last messages before. Raises Unavailable as `origin`.
    """
    texts: dict[Any, set[str]] = {"assistant": set(), "user": set()}
    said: dict[Any, set[str]] = {"assistant": set(), "user": set()}
    recorded = [found for each in sessions for found in _messages(home, each, newest=True, read=_read_unlocked)]
    messages = since_handoff(messages, [message for message, _ in recorded])
    for message, delivered in recorded:
        if content := message["content"].strip():
            found = texts if delivered or _is_delivery(message) else said
            found[message["role"]].add(content)
    sizes = {role: frozenset(map(len, found)) for role, found in texts.items()}

    def parted(message: Mapping[str, Any]) -> Mapping[str, Any]:
        role, content = message.get("role"), message.get("content")
        if not isinstance(content, str) or not sizes.get(role):
            return message
        rest = _without(content.strip(), texts[role], sizes[role])
        is_whole = content.strip() in said[role] and rest not in said[role]
        # Without a text, nothing tells that the host wrote the message, and began a turn with it.
        is_begun = role == "user" and not rest
        return message if is_whole or is_begun else {**message, "content": rest}

    return list(map(parted, messages))


def _messages(home: Path, session_id: str, *, newest: bool, read: Read) -> list[tuple[dict[str, Any], bool]]:
    """The messages, and whether each was delivered: one of the agent behind its answer, for which it was not asked.

    A gateway that starts again may go on with a session by itself. Then one host records a message without a text.
    """
    found, answered, goes_on = list[tuple[dict[str, Any], bool]](), False, False
    home = home_of_record(home, session_id, read)
    there = {row[0] for row in read(home, _COLUMNS, ("messages",))}
    more = ", ".join(part if name in there else "null" for name, part in _MORE.items())
    statement, limit = (_NEWEST_MESSAGES, NEWEST_MAX) if newest else (_MESSAGES, MESSAGES_MAX)
    rows = read(home, statement.format(more=more), (session_id, limit))
    for number, role, content, calls, gone, compacted, written, kind, end, sent in reversed(rows) if newest else rows:
        at = written if isinstance(written, int | float) and written < YEAR_10000 else 0
        marks = {"taken_back": bool(gone), "compacted": bool(compacted), "written": at, "display_kind": kind}
        said = {"id": number, "role": role, "content": decoded(content), "tool_calls": calls, "api_content": sent}
        if role == "user":
            goes_on = answered and content == ""
        speaks = role == "assistant" and not calls and not is_summary(said, said["content"])
        delivered = speaks and (goes_on or (answered and not end))
        answered = goes_on or delivered or (speaks and bool(end) and end not in _GOES_ON)
        found.append((said | marks, delivered))
    return found


def _is_delivery(message: Mapping[str, Any]) -> bool:
    """Whether the host itself says that the message is one, or a summary in place of an answer."""
    text = str(message["content"])
    return text.startswith(DELIVERED) if message["role"] == "user" else is_summary(message, text)


def _without(content: str, texts: Collection[str], sizes: Collection[int]) -> str:
    """The text of a message without those of other messages, which have these sizes, that it begins or ends with."""
    start, stop = 0, len(content)
    if stop in sizes and content in texts:
        return ""
    ends = [found.start() for found in _LINE_END.finditer(content)]
    for end in ends:
        if end - start in sizes and content.startswith("\n\n", end) and content[start:end] in texts:
            start = end + 2
    for end in reversed(ends):
        if stop - end - 1 in sizes and end >= start and content[end + 1 : stop] in texts:
            stop = end - content.startswith("\n", end - 1)
    rest = content[start:stop].strip()
    return "" if rest in texts else rest


def ancestors(home: Path, session_id: str, limit: int) -> tuple[str, ...]:
    """The sessions that a session continues, the nearest last; at most `limit`. Raises Unavailable as `origin`."""
    return tuple(str(row[0]) for row in reversed(_of_session(home, session_id, _PARENTS, limit, read=_read_unlocked)))


def continued(home: Path, session_id: str, limit: int) -> tuple[str, ...] | None:
    """The sessions that a session goes on from as a branch or after a compression, the nearest last.

    None when there is no record, or it cannot be read. Raises Unavailable as `origin`.
    """
    rows = _of_session(home, session_id, _CONTINUED, limit, read=_read_unlocked)
    found = tuple(str(row[0]) for row in reversed(rows))
    return found[:-1] if found else None


def left_in_terminal(home: Path, session_id: str) -> tuple[str, ...]:
    """The session of the same chat before this one, if the host ended it because a terminal was left."""
    return tuple(str(row[0]) for row in _of_session(home, session_id, _LEFT))


def compressed(home: Path, session_id: str, limit: int) -> tuple[str, ...]:
    """The sessions of which the transcript of a session is a summary, the nearest last; at most `limit`."""
    return tuple(str(row[0]) for row in reversed(_of_session(home, session_id, _COMPRESSED, limit)[1:]))


def began(home: Path, session_id: str) -> float:
    """When a session began, in seconds since 1970; 0 when that is not known."""
    at = next((row[0] for row in _of_session(home, session_id, _BEGAN)), 0)
    return at if isinstance(at, int | float) else 0


def is_rewound(home: Path, session_id: str) -> bool:
    """Whether messages of a session were taken back. It takes no memory, however long the session is."""
    return bool(_of_session(home, session_id, _TAKEN_BACK))


def rewound(home: Path, session_id: str, key: str, limit: int) -> tuple[str, ...]:
    """The newest sessions of the chat with this key that end with messages which were taken back; at most `limit`.

    The record is that which has the session `session_id`.
    """
    return tuple(str(row[0]) for row in _read(home_of_record(home, session_id), _REWOUND, (key, limit)))


def recent_sessions(home: Path, since: float, limit: int) -> list[dict[str, Any]]:
    """The rows of the newest `limit` sessions with messages since a time, in seconds since 1970.

    Each has the time of its `latest` message, and how many are `recorded` since then.
    Sessions of child agents are left out, and the system prompts, which are long. Empty when there is no record. Raises
    OSError when it cannot be read.
    """
    if not (home / "state.db").exists():
        return []
    try:
        names = [row[0] for row in _select(home, _COLUMNS, ("sessions",)) if row[0] != "system_prompt"]
        if not names:
            # A host that records all sessions in the home of its gateway makes the file of a profile for other things.
            return []
        columns = ", ".join(f's."{name}"' for name in names)
        return [dict(row) for row in _select(home, _RECENT.format(columns=columns), (since, limit))]
    except sqlite3.Error as error:
        raise OSError(errno.EIO, f"state.db of the host cannot be read ({type(error).__name__})") from error


def origin(home: Path, session_id: str) -> dict[str, str]:
    """What the record has of whose session it is, by the names of `initialize`; empty for that of a terminal.

    One host records no session key of clients. Raises Unavailable while the host locks it: it may be anybody's.
    """
    rows = _of_session(home, session_id, _ORIGIN, read=_read_unlocked)
    return {name: str(value) for row in rows for name, value in dict(row).items() if value}


def titles(home: Path, sessions: Sequence[str]) -> dict[str, str]:
    """The titles of those of these sessions that have one; empty when there is no record."""
    rows = _read(home, _TITLES, (json.dumps(list(sessions)),))
    return {str(number): title for number, title in rows if isinstance(title, str) and title.strip()}


def connect(path: Path, wait_s: float = WAIT_S_MAX) -> sqlite3.Connection:
    """The record, read-only. A lock is waited for `wait_s` seconds. Raises sqlite3.Error when there is none."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=wait_s)


def unreadable(error: Exception) -> None:
    """Log that the record cannot be read: a host may keep none."""
    log.debug("state.db of the host cannot be read: %s", type(error).__name__)


def _read(home: Path, statement: str, values: Sequence[object]) -> list[Any]:
    try:
        return _select(home, statement, values)
    except (sqlite3.Error, UnicodeError) as error:
        unreadable(error)
        return []


def _read_unlocked(home: Path, statement: str, values: Sequence[object]) -> list[Any]:
    try:
        return _select(home, statement, values)
    except (sqlite3.Error, UnicodeError) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _LOCKED:
            log.warning("state.db of the host is locked: what depends on it is not stored now")
            raise Unavailable("state.db of the host is locked; try again later") from error
        unreadable(error)
        return []


def _of_session(home: Path, session_id: str, statement: str, *values: object, read: Read = _read) -> list[Any]:
    return read(home_of_record(home, session_id, read), statement, (session_id, *values))


def home_of_record(home: Path, session_id: str, read: Read = _read) -> Path:
    """The home that has the record of a session, of this one and that of the gateway that serves it."""
    if in_gateway():
        with suppress(RuntimeError):
            gateway = process_home(os.environ)
            if gateway.resolve() != home and not read(home, _IS_THERE, (session_id,)):
                return gateway
    return home


def _select(home: Path, statement: str, values: Sequence[object]) -> list[Any]:
    with closing(connect(home / "state.db")) as record:
        record.row_factory = sqlite3.Row
        return record.execute(statement, values).fetchall()
