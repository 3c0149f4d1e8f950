"""import --from state-db: the past sessions of a host, as if this memory had been there."""

from __future__ import annotations

import argparse
import math
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from ...errors import BadArgument, BadEvent, Refused, SettingsError, Unavailable
from ...files import expanded
from ...hosts import state_db
from ...hosts.config import person_key
from ...hosts.environment import scrubber
from ...hosts.transcript import exchanges
from ...mirror.home import Home
from ...model import SessionEnded, TurnTaken
from ...session.capture import Capture
from ...session.identity import Identity
from ...session.off_record_marks import OffRecordMarks
from ...session.person_key import key_bytes
from ...session.themes import allowed, templated_theme, theme_of
from ...settings import Settings
from ...store import rows, statistics
from ...store.connection.database import Database
from ...store.passages import prepare
from ...text.cleaning import clean
from ...write.validation import validate
from ..console import Console
from ..host_record import (
    ANCESTORS_MAX,
    JOBS,
    SESSIONS_MAX,
    goes_on_off,
    identity_of,
    is_known,
    is_off,
    note_import,
    of_side,
    other_profile,
    turns_of,
)
from .rows import Rules

TURNS_AT_ONCE = 50
KEYLESS = "of persons and rooms, whose key the database does not have yet: run an agent first"
CLIENTS = "of clients of the API server, whose theme the record does not tell: name one with --theme"
NO_HANDOFF = "handed off to a chat, where the record does not tell which messages are of the terminal"
STATEMENT_S_MAX = 60.0
# The ids of the events that turns become are made of this and of the turns, so that none is stored twice.
_NAMESPACE = uuid.UUID("0d9f4c1e-3a77-5c0b-8c52-6d1f1e0b7a44")
# What the record of a session had before a terminal handed it off to a chat: the host replaces it by that of the chat.
_OF_CHAT = ("session_key", "chat_id", "chat_type", "thread_id", "user_id", "origin_json")
_TERMINAL = dict.fromkeys(_OF_CHAT, "") | {"source": "cli"}
Pair: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class _Job:
    """An import of one record: what it knows, and what it has counted."""

    database: Database
    rules: Rules
    home: Home
    """The home that the record is in."""
    into: Path
    """The home whose memory it is brought into."""
    off: frozenset[str]
    person_key: bytes
    dry_run: bool
    capture: Capture
    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[int, str]] = field(default_factory=list)
    planned: dict[str, Counter[Pair]] = field(default_factory=dict)
    themes: dict[str, set[str]] = field(default_factory=dict)
    """The themes that have turns of a session."""
    of_others: set[str] = field(default_factory=set)
    """The sessions that are of a person, a room or a client."""
    handed_off: set[str] = field(default_factory=set)
    """The sessions that a terminal has handed off to a chat."""
    clients_since: float = math.inf
    """When the first session of a client with a session key began: one host records none, nor did earlier releases."""

    @property
    def settings(self) -> Settings:
        return self.rules.settings


def bring(database: Database, rules: Rules, console: Console, args: argparse.Namespace) -> dict[str, Any]:
    """Store the turns of all sessions that are missing, each at its time. Raises BadArgument."""
    path = expanded(args.path)
    path = path / "state.db" if path.is_dir() else path
    if path.name != "state.db" or not path.is_file():
        what = "is no state.db of a host" if path.exists() else "does not exist"
        raise BadArgument(f"{path} {what}; name the HERMES_HOME of a host, or the state.db in it")
    record = Home(path.parent)
    if rules.settings.off_record:
        raise BadArgument("the setting off_record is on: nothing of sessions is stored")
    began = datetime.now(UTC)
    key = person_key(args.home) or database.claim_person_key("")
    marks = (OffRecordMarks(home.path, home.state).names() for home in (record, Home(args.home)))
    job = _Job(
        database, rules, record, args.home, frozenset[str]().union(*marks), key_bytes(key), args.dry_run,
        Capture(rules.settings),
    )  # fmt: skip
    try:
        sessions = state_db.recent_sessions(record.path, 0, SESSIONS_MAX)[::-1]
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; nothing is imported") from None
    # The oldest first: a session may begin with turns of one before it, in which more may have been said later.
    sessions.sort(key=_began)
    with database.transaction(statement_timeout_s=STATEMENT_S_MAX) as connection:
        named = (str(row.get(name) or "") for row in sessions for name in ("id", "parent_session_id"))
        job.themes = statistics.themes_of_sessions(connection, list(dict.fromkeys(map(clean, named))))
    keyed = [row for row in sessions if row.get("session_key")]
    job.of_others = {clean(str(row["id"])) for row in keyed}
    job.handed_off = {str(row["id"]) for row in keyed if row.get("handoff_state") == "completed"}
    job.clients_since = next((_began(row) for row in keyed if row.get("source") == "api_server"), math.inf)
    with console.progress() as progress:
        for row in progress.track(sessions, description="sessions"):
            _session(job, row)
    if record.path == Home(args.home).path and not (args.dry_run or job.wrong or job.skipped[KEYLESS]):
        with database.transaction() as connection:
            note_import(record.path, connection, began)
    found = {"found": job.counts["found"], "new": job.counts["new"]}
    wrong = [{"line": number, "reason": reason} for number, reason in job.wrong]
    return {"rows": {"turn": found} if sessions else {}, "sessions": len(sessions), "skipped": dict(job.skipped),
            "erased": 0, "vectors": "none", "wrong": wrong}  # fmt: skip


def _began(row: Mapping[str, Any]) -> float:
    """When a session began, in seconds since 1970; 0 when that is not known."""
    at = row.get("started_at")
    return at if isinstance(at, int | float) else 0


def _session(job: _Job, row: Mapping[str, Any]) -> None:
    session_id, identity = str(row["id"]), identity_of(row, job.settings)
    profile = other_profile(row, job.home.path, job.into)
    if profile and (identity.gateway_session_key or not job.rules.theme):
        job.skipped[f"of the profile {clean(profile)[:60]}: import them with its --home"] += 1
        return
    sides = [identity_of({**row, **_TERMINAL}, job.settings)] if session_id in job.handed_off else []
    themes = {side: theme for side in (*sides, identity) if (theme := _theme_to_fill(job, row, side))}
    if not themes:
        return
    recorded, named = state_db.messages(job.home.path, session_id), clean(session_id)[:60]
    try:
        goes_off = goes_on_off(job.home.path, session_id, identity, job.off, job.settings)
        ancestors = state_db.ancestors(job.home.path, session_id, ANCESTORS_MAX)
    except (OSError, Unavailable):
        recorded, goes_off, ancestors = [], False, ()
    if not recorded:
        job.wrong.append((0, f"session {named} cannot be read now; run the command again"))
        return
    if goes_off:
        job.skipped["off the record"] += 1
        return
    if row["recorded"] > (most := state_db.MESSAGES_MAX):
        job.wrong.append((0, f"session {named}: only the first {most:,} messages are read"))
    for side, theme in themes.items():
        said = of_side(job.home.path, (*ancestors, session_id), job.handed_off, side, recorded)
        if said is None:
            job.skipped[NO_HANDOFF] += 1
            return
        _turns(job, row, theme, side, ancestors, [message for message in said if not message["taken_back"]])


def _turns(
    job: _Job, row: Mapping[str, Any], theme: str, identity: Identity,
    ancestors: tuple[str, ...], messages: Sequence[Mapping[str, Any]],
) -> None:  # fmt: skip
    """Store the turns of a session, or of one side of it, that are missing in a theme."""
    session_id, source = str(row["id"]), identity.source(identity.only_author)
    judge, shared = partial(job.capture.turn, source=source), not identity.has_one_author
    judged = list(turns_of(messages, judge, shared=shared, sessions=(session_id, *ancestors), marks=job.off))
    if row.get("end_reason") == "compression":
        # The session that goes on from it has a last question without an answer, too.
        running = [pair for pair in exchanges(messages)[-1:] if not pair[1]]
        judged = [turn for turn in judged if turn[1] not in running]
    ended = SessionEnded(
        theme=theme, home=job.home.known_id, session_id=session_id, ancestors=ancestors,
        turns=tuple(texts for _, _, texts in judged), parent_session_id=str(row.get("parent_session_id") or ""),
    )  # fmt: skip
    ended = validate(ended, job.settings)  # type: ignore[assignment]
    noted, times = _with_notes(job, ended, [pair for _, pair, _ in judged]), dict[Pair, list[datetime]]()
    for (at, _, _), texts in zip(judged, ended.turns, strict=True):
        times.setdefault(texts, []).append(at)
    job.counts["found"] += len(ended.turns)
    try:
        _store(job, ended, noted, times, _marks(row, identity), list(_others(job, ended, identity)))
    except BadEvent as error:
        job.wrong.append((0, f"session {clean(session_id)[:60]}: {error}"))


def _with_notes(job: _Job, ended: SessionEnded, recorded: Sequence[Pair]) -> dict[Pair, Pair]:
    """Turns without an answer, which their question identifies, as earlier releases stored them: as recorded."""
    asked = tuple((job.capture.masked(scrubber()(question)).strip(), "") for question, _ in recorded)
    whole = validate(replace(ended, turns=asked), job.settings)
    turns = zip(ended.turns, whole.turns, strict=True)  # type: ignore[union-attr]
    return {turn: noted for turn, noted in turns if not turn[1] and turn != noted}


def _why_not(job: _Job, session_id: str, identity: Identity) -> str:
    """Why a session is left out; empty when it is not."""
    if identity.platform in JOBS:
        return "jobs of the host"
    if is_off(session_id, identity, job.off, job.settings):
        return "off the record"
    if job.settings.keep and not is_known(identity.source(identity.only_author)):
        return "the rules of keep depend on where it was said, which the record does not tell"
    return ""


def _theme_to_fill(job: _Job, row: Mapping[str, Any], identity: Identity) -> str:
    """The theme that the turns of a session, or of one side of it, go into; empty, and counted, when it is left out."""
    theme, reason = _theme(job, identity, _began(row))
    if why := reason or _why_not(job, str(row["id"]), identity):
        job.skipped[why] += 1
        return ""
    return theme


def _theme(job: _Job, identity: Identity, began: float) -> tuple[str, str]:
    """The theme of a session, or why it has none. Only sessions without a person or room go into `--theme`."""
    settings = job.settings
    try:
        if not identity.gateway_session_key:
            if identity.platform == "api_server" and not job.rules.theme and began < job.clients_since:
                return "", CLIENTS
            theme = job.rules.theme or templated_theme(identity, settings)
        else:
            theme = theme_of(identity, aliases=settings.theme_aliases, person_key=job.person_key)
    except BadArgument:
        return "", "a session key that names no theme"
    except SettingsError:
        return "", KEYLESS
    return theme, "" if allowed(theme, settings.allowed_themes) else "a theme that is not in allowed_themes"


def _marks(row: Mapping[str, Any], identity: Identity) -> dict[str, str]:
    title = row.get("title")
    marks = {"origin": "state.db", "platform": identity.platform}
    return {**marks, "title": clean(title)[:200]} if isinstance(title, str) and title.strip() else marks


def _others(job: _Job, ended: SessionEnded, identity: Identity) -> Iterator[SessionEnded]:
    """A session in the other themes that may have its turns: a terminal may go on with it, and clients share its id.

    What goes into the theme that an operator has named is looked for in this one only, but for what a person, a room
    or a client has said before a terminal went on with it.
    """
    sessions = (ended.session_id, *ended.ancestors)
    if job.rules.theme and not identity.gateway_session_key:
        sessions = tuple(session for session in ended.ancestors if session in job.of_others)
    themes = {theme for session in sessions for theme in job.themes.get(session, ())}
    job.themes.setdefault(ended.session_id, set()).add(ended.theme)
    for theme in themes - {ended.theme}:
        yield replace(ended, theme=theme, session_id=sessions[0], ancestors=sessions[1:])


def _store(
    job: _Job,
    ended: SessionEnded,
    noted: dict[Pair, Pair],
    times: dict[Pair, list[datetime]],
    marks: Mapping[str, str],
    others: Iterable[SessionEnded],
) -> None:
    with job.database.transaction(statement_timeout_s=STATEMENT_S_MAX) as connection:
        missing = rows.missing_of_session(connection, ended)
        for other in others:
            missing = rows.missing_of_session(connection, replace(other, turns=tuple(missing)))
        if asked := [turn for turn in missing if turn in noted]:
            earlier = replace(ended, turns=tuple(noted[turn] for turn in asked))
            left = Counter(rows.missing_of_session(connection, earlier))
            missing = [turn for turn in missing if turn not in noted or rows.take(left, noted[turn])]
        if job.dry_run:
            # What an earlier session would have stored.
            for session in ended.ancestors:
                missing = rows.missing_turns(missing, dict(job.planned.get(session, {})))
            job.planned.setdefault(ended.session_id, Counter()).update(missing)
            job.counts["new"] += len(missing)
            return
        events = _events(ended, missing, times, marks)
        for start in range(0, len(events), TURNS_AT_ONCE):
            batch = [prepare(event) for event in events[start : start + TURNS_AT_ONCE]]
            job.counts["new"] += rows.apply(connection, batch)


def _events(
    ended: SessionEnded, missing: Sequence[Pair], times: dict[Pair, list[datetime]], marks: Mapping[str, str]
) -> list[TurnTaken]:
    """The missing turns. They are marked as a replay, so that one that still waits in a spool replaces its row."""
    replayed = {"at": datetime.now(UTC).isoformat(), "sessions": [ended.session_id, *ended.ancestors]}
    events, said = [], Counter[Pair]()
    for turn in missing:
        said[turn] += 1
        name = "\0".join((ended.theme, ended.session_id, *turn, str(said[turn])))
        events.append(
            TurnTaken(
                id=uuid.uuid5(_NAMESPACE, name).hex, theme=ended.theme, home=ended.home, session_id=ended.session_id,
                parent_session_id=ended.parent_session_id, at=times[turn].pop(0), user=turn[0], assistant=turn[1],
                metadata={**marks, "replayed": replayed},
            )
        )  # fmt: skip
    return sorted(events, key=lambda event: event.at)
