"""The host's record of its sessions as the commands read it: whose they are, and the turns that are to be stored."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from ..files import LastingMarks, mark_name, overwrite, read_matching
from ..hosts import state_db
from ..hosts.environment import scrubber
from ..hosts.runtime_messages import CORRECTED, corrections, is_within_turn
from ..hosts.transcript import before_handoff, exchanges, since_handoff, text_of
from ..mirror.home import begin
from ..session import off_record
from ..session.capture import Verdict
from ..session.identity import Identity
from ..session.off_record_marks import last_switch, silenced_answers, went_on_off
from ..session.project import project_of
from ..session.session_context import READ_ONLY_CONTEXTS
from ..session.themes import templated_theme
from ..settings import Settings
from ..store import statistics
from ..store.connection.database import Connection
from ..store.queries import QUERIES
from ..text.keep import TERMINALS, Source
from ..text.theme_names import DEFAULT_THEME, normalise

# Sessions of the host's own jobs, which have no memory.
JOBS = READ_ONLY_CONTEXTS | {"tool", "curator"}
# Platforms whose sessions have no type of chat.
PLACES = TERMINALS | {"api_server"}
SESSIONS_MAX, ANCESTORS_MAX = 1_000_000, 50
# A session without a message for so long is over.
OVER_AFTER = timedelta(hours=1)
# How many sessions tell whether past ones are stored, and how far from the last message their turns may be.
OLDEST, NEAR = 200, timedelta(days=1)
STATEMENT_S_MAX = 10.0
# The file that tells until when the sessions of a home were imported, and into which database, by the time it was made.
IMPORTED = "past_sessions"
_IMPORTED = re.compile(r"[\d.]+ [\d.]+")
IMPORT_SESSIONS = "hermes-pgvector import --from state-db"


def past_sessions(settings: Settings, home: Path, connection: Connection | None) -> int:
    """How many sessions of persons are over, when none of the oldest is in the database, as before an import; else 0.

    What an import has gone through is none of them, and it is 0 where settings store no turns. Without a connection
    there is no database yet. Raises OSError when the record cannot be read, and what a statement raises.
    """
    if settings.off_record or not settings.sync_turns:
        return 0
    until = datetime.now(UTC) - OVER_AFTER
    found = state_db.recent_sessions(home, 0, SESSIONS_MAX)
    timed = [row for row in reversed(found) if isinstance(row["latest"], int | float)]
    own = [row for row in timed if row.get("source") not in JOBS and not other_profile(row, home, home)]
    since = _imported_until(home, connection)
    past = [row for row in own if since <= row["latest"] < until.timestamp()]
    if connection is None or not past:
        return len(past)
    oldest = past[:OLDEST]
    first, last = (datetime.fromtimestamp(oldest[at]["latest"], UTC) for at in (0, -1))
    named = [str(row["id"]) for row in oldest]
    stored = statistics.newest_of_sessions(connection, named, first - NEAR, 1, last + NEAR)
    return 0 if stored else len(past)


def note_import(home: Path, connection: Connection, until: datetime) -> None:
    """Remember that the sessions of a home until then were imported into this database, where the home is writable."""
    with suppress(OSError, SettingsError):
        begin(home)
        overwrite(home / "pgvector" / IMPORTED, f"{_made_at(connection)} {until.timestamp()}")


def _imported_until(home: Path, connection: Connection | None) -> float:
    noted = read_matching(home / "pgvector" / IMPORTED, _IMPORTED).split()
    return float(noted[1]) if noted and connection and float(noted[0]) == _made_at(connection) else 0.0


def _made_at(connection: Connection) -> float:
    """When the tables of a database were made, in seconds since 1970. It tells databases apart, also when restored."""
    row = connection.execute(QUERIES["archive_origin"]).fetchone() or {}
    return row["made_at"].timestamp() if row.get("made_at") else 0.0


def is_known(source: Source) -> bool:
    """Whether the record tells where a session was, on which the rules of `keep` may depend."""
    return bool(source.chat_type) or source.platform in PLACES


def identity_of(row: Mapping[str, Any], settings: Settings) -> Identity:
    """The identity of a session as its agent had it, as far as the host recorded it."""
    try:
        alternative = json.loads(row.get("origin_json") or "{}").get("user_id_alt")
    except (AttributeError, TypeError, ValueError):
        alternative = ""
    identity = Identity.of(
        {
            **row,
            "platform": row.get("source"),
            "gateway_session_key": row.get("session_key"),
            "agent_identity": row.get("profile_name"),
            "user_id_alt": alternative,
        }
    )
    folder = str(row.get("cwd") or "")
    if folder and "{project}" in settings.theme_template:
        return replace(identity, project=project_of(Path(folder)))
    return identity


def other_profile(row: Mapping[str, Any], record: Path, home: Path) -> str:
    """The name of the profile of a session, where that is another one than `home` of the same host; or empty.

    One host records the sessions of all profiles of a gateway in the home of the gateway, which has the `record`.
    """
    name, record, home = str(row.get("profile_name") or ""), record.resolve(), home.resolve()
    folder = record / "profiles" / name
    if not (name and folder.is_dir()):
        name, folder = DEFAULT_THEME, record
    is_beside = home in (record, record / "profiles" / home.name)
    return name if is_beside and folder != home else ""


def is_off(session_id: str, identity: Identity, marks: frozenset[str], settings: Settings) -> bool:
    """Whether a session is marked as off the record; where several themes may share its id, in any that is known."""
    own = templated_theme(identity, settings)
    key = normalise(identity.gateway_session_key)
    themes = {own, key, "", DEFAULT_THEME, *settings.allowed_themes, *settings.theme_aliases.values()}
    names = (session_id, *(f"{session_id}:{theme}" for theme in themes))
    return LastingMarks.ALL in marks or any(mark_name(name) in marks for name in names)


def goes_on_off(record: Path, session_id: str, identity: Identity, marks: frozenset[str], settings: Settings) -> bool:
    """Whether nothing in a session tells, but it goes on from one off the record: maybe nobody has spoken in it yet.

    Raises OSError when the record cannot be read now.
    """
    before = state_db.continued(record, session_id, ANCESTORS_MAX)
    if before is None:
        raise OSError(errno.EIO, "state.db of the host cannot be read now")
    if not before or last_switch(record, session_id) is not None:
        return False
    return went_on_off(record, (*before, session_id), lambda session, _: is_off(session, identity, marks, settings))


def of_side(
    record: Path, sessions: Sequence[str], handed_off: Collection[str],
    identity: Identity, recorded: Sequence[Mapping[str, Any]],
) -> Sequence[Mapping[str, Any]] | None:  # fmt: skip
    """The messages of the last of these sessions, which go on from each other, without those of the other side.

    Terminals have handed off those in `handed_off` to chats. What was said between two handoffs is of neither side. A
    switch before the last one holds in the chat. None when the record does not tell of the handoff.
    """
    found = [session for session in sessions if session in handed_off]
    before = before_handoff(recorded) if sessions[-1] in found else recorded
    if before is None or not (found and identity.gateway_session_key):
        return before
    later = since_handoff(recorded, [message for session in found for message in state_db.messages(record, session)])
    earlier = [m for m in recorded[: len(recorded) - len(later)] if m["role"] == "user" and not m["taken_back"]]
    return [*[m for m in earlier if off_record.switch(m["content"]) is not None][-1:], *later]


def turns_of(
    messages: Sequence[Mapping[str, Any]],
    judge: Callable[..., Verdict],
    *,
    shared: bool = False,
    sessions: Sequence[str] = (),
    marks: frozenset[str] = frozenset(),
) -> Iterator[tuple[datetime, tuple[str, str], tuple[str, str]]]:
    """The turns of a session that were said on the record: when each ended, its sides, and what is stored of them.

    `judge` is `Capture.turn` of a source. `marks` tell of turns off the record in the session, or those before it, of
    which no message tells: `sessions` are all of these.
    In a session that several people share, a message that corrected a turn may be by another one, and is left out.
    """
    times: dict[tuple[str, str], float] = {}
    questions: dict[tuple[str, str], str] = {}
    for turn in _split(messages):
        for pair in exchanges(turn):
            times.setdefault(pair, max(float(message["written"]) for message in turn))
            said = () if shared else chain.from_iterable(map(_corrections, turn))
            # A question without an answer is stored as it was asked.
            questions[pair] = CORRECTED.join([pair[0], *said]) if pair[1] else pair[0]
    scrub, silenced = scrubber(), _silenced(exchanges(messages))
    recorded = [pair for pair in off_record.recorded(messages, merged=True) if pair not in silenced]
    # A question without an answer is left out while its session, or one before it, is off the record by a correction.
    unsaid = silenced_answers(marks, sessions, (answer for _, answer in recorded))
    recorded = [pair for pair in recorded if pair[1] not in unsaid]
    for place, pair in enumerate(recorded, 1):
        continued = not pair[1] and place < len(recorded)
        texts = judge(scrub(questions.get(pair, pair[0])), scrub(pair[1]), continued=continued).sides
        if any(texts) and pair in times:
            yield datetime.fromtimestamp(times[pair], UTC), pair, texts


def _silenced(turns: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """The turns that a message takes off the record, and those before it that it has interrupted."""
    found, off = set[tuple[str, str]](), False
    for question, answer in reversed(turns):
        off = off_record.silences(question) or (off and not answer)
        found |= {(question, answer)} if off else set()
    return found


def _corrections(message: Mapping[str, Any]) -> list[str]:
    """What a person said to correct a turn, in a message of its own: the result of a tool may have it from anybody."""
    said = corrections(message, text_of(message["content"])) if message["role"] == "user" else []
    return [text for text in said if not off_record.unrecorded(text)]


def _split(messages: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """The messages from each question to the next one."""
    turn: list[Mapping[str, Any]] = []
    for message in messages:
        if message["role"] == "user" and turn and not is_within_turn(message, text_of(message["content"])):
            yield turn
            turn = []
        turn.append(message)
    if turn:
        yield turn
