"""The values that flow through the house."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

Target: TypeAlias = Literal["memory", "user"]
Vector: TypeAlias = list[float]
Metadata: TypeAlias = Mapping[str, Any]

TARGETS: tuple[Target, ...] = ("memory", "user")
# How a reason begins why a recall does not go by meaning; what follows is for operators.
WORDS_ONLY = "by words only"


def now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accepted:
    """What all events carry: whose they are, where they came from, and when.

    `id` makes replays harmless: the ledger in the database applies each id once.
    """

    theme: str
    home: str = ""
    session_id: str = ""
    at: datetime = field(default_factory=now)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(_Accepted):
    """An entry was added to MEMORY.md (`memory`) or USER.md (`user`).

    `from_file` marks an entry found by reading the file: it is stored unless some theme of the home already holds it.
    """

    target: Target
    content: str
    from_file: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace(_Accepted):
    """An entry was replaced. `previous` is its whole old text, empty when the hook could not tell.

    Then the old entry is the one row that holds `old_text` and is not among `surviving`, the file's entries after the
    change.
    """

    target: Target
    content: str
    previous: str = ""
    old_text: str = ""
    surviving: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(_Accepted):
    """An entry was removed; the fields mean the same as those of `Replace`.

    `from_file` marks a line that was found gone from the file: it goes from all themes of the home.
    """

    target: Target
    previous: str = ""
    old_text: str = ""
    surviving: tuple[str, ...] = ()
    from_file: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTaken(_Accepted):
    """A user message with its answer. An empty side is not stored."""

    user: str
    assistant: str
    parent_session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(_Accepted):
    """The (user, assistant) pairs of a session as the host replays them; only the turns that are missing are stored.

    The transcript of a branch or of a compressed session begins with turns of its `ancestors`, the sessions before it.
    """

    turns: tuple[tuple[str, str], ...]
    parent_session_id: str = ""
    ancestors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn(_Accepted):
    """Turns of a session, as (user, assistant) pairs, that the user has taken back.

    `standing` tells for each how many like it still stand in the transcript: so many stay. `continued` are the sessions
    whose compressed transcript this one goes on with.
    """

    turns: tuple[tuple[str, str], ...]
    standing: tuple[int, ...]
    continued: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegated(_Accepted):
    """The agent gave a task to a child agent and got its result."""

    task: str
    result: str
    child_session_id: str = ""


Event: TypeAlias = Add | Replace | Remove | TurnTaken | SessionEnded | Withdrawn | Delegated


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows a recall for theme `own` may see.

    `themes` is None for `own` and every theme that is not reserved for one person or room; a `session_id` narrows to
    one session, `without_session` leaves out the turns of one, of all times or from `without_since` on. `hidden` is a
    pattern of names that only their owners read; empty, that of reserved ones. `since` is the first moment that counts,
    `until` the first that does not any more; all moments have a time zone. `role` narrows turns to one side.
    """

    own: str
    themes: tuple[str, ...] | None
    session_id: str = ""
    without_session: str = ""
    without_since: datetime | None = None
    hidden: str = ""
    since: datetime | None = None
    until: datetime | None = None
    role: str = ""

    @property
    def cuts_sessions(self) -> bool:
        """Whether a row may be of the scope and its neighbour in the session not."""
        return bool(self.since or self.until or self.role or self.without_since)

    def holds(self, row: Row) -> bool:
        """Whether a row of these themes and sessions is of the time and the side that is asked for."""
        late = self.since is None or row.at >= self.since
        early = self.until is None or row.at < self.until
        running = bool(self.without_session) and row.session_id == self.without_session
        apart = not running or (self.without_since is not None and row.at < self.without_since)
        return late and early and apart and (not self.role or row.role == self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """On whose behalf a tool runs. `marks` are kept with what it stores; `off_record` lets it store nothing."""

    theme: str
    session_id: str = ""
    marks: Metadata = field(default_factory=dict)
    off_record: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """One question to the memory. `limit` counts hits; `budget_s` is the time in seconds until the answer is due.

    `context` is how many turns before and after it a hit brings with it.
    """

    query: str
    scope: Scope
    limit: int
    budget_s: float
    target: Target | None = None
    context: int = 0


class Row(NamedTuple):
    """A stored row as a recall reads it: an entry with its `target`, or a turn with its `role` and `session_id`."""

    theme: str
    id: int
    content: str
    metadata: Metadata | None
    at: datetime
    role: str
    session_id: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A recalled row with its provenance and its scores.

    `score` in [0, 1] orders the hits of one recall and means nothing across recalls. `similarity` is the cosine of the
    query's and the row's vectors, None when either has none. `words` is the BM25 score of the words of
    the question that the row holds, and `matched` are these, the most telling first.
    `target` is set for entries, `role` and `session_id` for turns. `said` counts the found rows that say the same, of
    which the hit is the best. `context` holds the turns around it, in order, when they were asked for.
    """

    id: int
    theme: str
    content: str
    at: datetime
    score: float
    similarity: float | None = None
    words: float = 0.0
    matched: tuple[str, ...] = ()
    target: str = ""
    role: str = ""
    session_id: str = ""
    metadata: Metadata = field(default_factory=dict)
    said: int = 1
    context: tuple[Hit, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a recall was answered: rows in scope (counted up to a bound), the plan, what the legs found, milliseconds."""

    rows: int = 0
    plan: str = "none"
    near: int = 0
    words: int = 0
    embed_ms: float = 0.0
    legs_ms: float = 0.0
    hits_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Recall:
    """The hits, best first, and why the answer may be worse than usual (one phrase a reason, empty when it is not)."""

    hits: tuple[Hit, ...] = ()
    degraded: tuple[str, ...] = ()
    explanation: Explanation = Explanation()


@dataclass(frozen=True, slots=True)
class Counters:
    """What became of the events of one process. Two identities hold at any quiet moment:

    offered = accepted + refused, and accepted + adopted = applied + already_there + pending + set_aside.
    What a runtime leaves to an adopter when it closes is taken out of them.
    """

    offered: int = 0
    accepted: int = 0
    refused: int = 0
    adopted: int = 0
    applied: int = 0
    already_there: int = 0
    set_aside: int = 0
    pending: int = 0

    @property
    def balanced(self) -> bool:
        """Whether both hold."""
        settled = self.applied + self.already_there + self.set_aside
        return self.offered == self.accepted + self.refused and self.accepted + self.adopted == settled + self.pending
