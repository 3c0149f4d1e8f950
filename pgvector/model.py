"""The value classes that the modules pass to each other."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, get_args

Target: TypeAlias = Literal["memory", "user"]
Vector: TypeAlias = list[float]
Metadata: TypeAlias = Mapping[str, Any]

TARGETS: tuple[Target, ...] = ("memory", "user")
FILES: Mapping[Target, str] = {"memory": "MEMORY.md", "user": "USER.md"}
Outside: TypeAlias = Literal["all", "local", "none"]
FactKind: TypeAlias = Literal["C", "D", "V", "?", "done", "obs"]  # constraint, decision, value, open question, …
FACT_KINDS: tuple[FactKind, ...] = get_args(FactKind)
FACT_TARGET_CHARS_MAX, FACT_SCOPE_CHARS_MAX = 200, 100
FACTS_HEADING = "Facts (quoted data"  # begins the block of hot facts before a turn
WORDS_ONLY = "by words only"  # begins the reason why a recall has no vector search; the rest is for operators


def now() -> datetime:
    """The current time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accepted:
    """The fields of all events: theme, origin and time. The ledger in the database applies each `id` once."""

    theme: str
    home: str = ""
    session_id: str = ""
    at: datetime = field(default_factory=now)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(_Accepted):
    """An entry was added to MEMORY.md (`memory`) or USER.md (`user`).

    `from_file` marks an entry found by reading the file: it is stored unless a theme of the home has it already.
    `supersedes` is the id of an entry of the theme whose place it takes, 0 for none. `expires` is a time in ISO 8601 or
    `never`. An empty one, and `tags` of None, keep what the superseded or the equal entry has.
    """

    target: Target
    content: str
    from_file: bool = False
    supersedes: int = 0
    expires: str = ""
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(_Accepted):
    """An entry of the theme, known by its id, gets another text. `expires` and `tags` as in `Add`."""

    entry_id: int
    content: str
    expires: str = ""
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace(_Accepted):
    """An entry was replaced. `previous` is its whole old text, or empty when the hook does not know it. Then the old
    entry is the only row that contains `old_text` and is not in `surviving`, the entries of the file after the change.
    """

    target: Target
    content: str
    previous: str = ""
    old_text: str = ""
    surviving: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(_Accepted):
    """As `Replace`. An entry that was missing in the file (`from_file`) is removed from all themes of the home."""

    target: Target
    previous: str = ""
    old_text: str = ""
    surviving: tuple[str, ...] = ()
    from_file: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributed(_Accepted):
    """The entries that these `saves` have stored were made with the tools in `metadata`."""

    saves: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTaken(_Accepted):
    """A user message with its answer. An empty side is not stored."""

    user: str
    assistant: str
    parent_session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(_Accepted):
    """The (user, assistant) pairs of a session's transcript. Only the turns that are missing are stored.

    The transcript of a branch or a compressed session begins with turns of its `ancestors`, the sessions before it.
    """

    turns: tuple[tuple[str, str], ...]
    parent_session_id: str = ""
    ancestors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn(_Accepted):
    """Turns of a session that the user took back, as (user, assistant) pairs.

    `standing` has the number of equal turns that are left in the transcript, for each turn: so many rows stay.
    `continued` are the sessions whose compressed transcript this session continues.
    """

    turns: tuple[tuple[str, str], ...]
    standing: tuple[int, ...]
    continued: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegated(_Accepted):
    """A task that the agent gave to a child agent, and its result."""

    task: str
    result: str
    child_session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactWritten(_Accepted):
    """A fact. It supersedes an older one of its kind, target and scope; an empty `scope` is that of its session."""

    kind: FactKind
    target: str
    content: str
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsTicked(_Accepted):
    """A turn of a session began. `closing` is whether its message says that the work of the session's scope is done."""

    turn: int
    closing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsPurged(_Accepted):
    """Superseded and archived facts are deleted: of one scope, and those older than so many days, where it says so."""

    scope: str = ""
    older_than_days: int | None = None


FactEvent: TypeAlias = FactWritten | FactsTicked | FactsPurged
EntryEvent: TypeAlias = Add | Update | Replace | Remove | Attributed
Event: TypeAlias = EntryEvent | TurnTaken | SessionEnded | Withdrawn | Delegated | FactEvent


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows a recall for theme `own` may see.

    `themes` is None for `own` and all themes that do not match the pattern `hidden`; an empty pattern means reserved
    names. `sessions` limit the scope to some sessions. `without_session` leaves out a session, or its turns from
    `without_since` on. Rows from `since` on and before `until` are in scope; times have a time zone. `role` limits
    turns to one side, `target` entries to one file, `label` facts to one of their scopes. `tags` limits entries to
    those with one of these, or with all of them, and turns to the sessions in which such an entry was remembered.
    """

    own: str
    themes: tuple[str, ...] | None
    sessions: tuple[str, ...] = ()
    without_session: str = ""
    without_since: datetime | None = None
    hidden: str = ""
    since: datetime | None = None
    until: datetime | None = None
    role: str = ""
    target: str = ""
    label: str = ""
    tags: tuple[str, ...] = ()
    all_tags: bool = False

    @property
    def cuts_sessions(self) -> bool:
        """Whether a row in scope can have a neighbour in its session that is not, other than the one after the last."""
        return bool(self.since or self.until or self.role)

    @property
    def narrow(self) -> bool:
        """Whether it may have few of the rows of its themes."""
        return bool(self.cuts_sessions or self.sessions or self.target or self.label or self.tags)

    def holds(self, at: datetime, session_id: str, role: str) -> bool:
        """Whether a row of these themes and sessions has a time and role in scope."""
        timely = (self.since is None or at >= self.since) and (self.until is None or at < self.until)
        running = bool(self.without_session) and session_id == self.without_session
        apart = not running or (self.without_since is not None and at < self.without_since)
        return timely and apart and (not self.role or role == self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls a tool. `marks` are stored with new entries; with `off_record` the tool stores nothing.

    `refusal` returns why a text is not stored; empty when it may be. `granted` are the other themes that it may read;
    None leaves that to the settings. `ancestors` returns the sessions that the caller's continues. `reads_files` is
    whether MEMORY.md and USER.md of the home, which all its themes write, are in the caller's prompt.
    """

    theme: str
    session_id: str = ""
    marks: Metadata = field(default_factory=dict)
    off_record: bool = False
    refusal: Callable[[str], str] = lambda _: ""
    granted: tuple[str, ...] | None = None
    ancestors: Callable[[], tuple[str, ...]] = tuple
    reads_files: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """At most `limit` hits in `budget_s` s, with `context` turns around each, of sources that `outside` allows."""

    query: str
    scope: Scope
    limit: int
    budget_s: float
    context: int = 0
    outside: Outside = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A recalled row with its provenance and its scores.

    `score` in [0, 1] orders the hits of one recall; scores of different recalls cannot be compared. `relevance` is the
    score of the re-ranker as it is, None without one. `similarity` is the cosine of question and row, None without
    vectors. `words` is the BM25 score of the row, and `matched` are the words of the question in it, the rarest first.
    `target` is set for entries and facts, `role` and `session_id` for turns; `metadata` of a fact have its kind, scope,
    content and status under `fact`. `said` counts the found rows with the same text, `alike` more that differ in
    figures or a word and are left out. `side` is the other side of its turn, if found. `newer` is the row that
    supersedes it, as id and time. `withheld` is the source for which its answer is left out; a `pointer` was found by
    the answer alone, or is an entry left out itself. `context` are the turns around it. Turns have no tags or expiry.
    """

    id: int
    theme: str
    content: str
    at: datetime
    score: float = 0.0
    similarity: float | None = None
    relevance: float | None = None
    words: float = 0.0
    matched: tuple[str, ...] = ()
    target: str = ""
    role: str = ""
    session_id: str = ""
    metadata: Metadata = field(default_factory=dict)
    said: int = 1
    alike: int = 0
    side: Hit | None = None
    newer: tuple[int, datetime] | None = None
    withheld: str = ""
    pointer: bool = False
    context: tuple[Hit, ...] = ()
    tags: tuple[str, ...] = ()
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a recall was answered: rows in scope (counted up to a bound), plan, what each search found, milliseconds."""

    rows: int = 0
    plan: str = "none"
    near: int = 0
    words: int = 0
    embed_ms: float = 0.0
    legs_ms: float = 0.0
    hits_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Period:
    """The times from `since` on and before `until`, and the words of a question that name them."""

    since: datetime
    until: datetime
    words: str


@dataclass(frozen=True, slots=True)
class Recall:
    """The hits, best first; why they may be worse than usual; and which time counts more, as the question says."""

    hits: tuple[Hit, ...] = ()
    degraded: tuple[str, ...] = ()
    explanation: Explanation = Explanation()
    period: Period | None = None

    @property
    def texts(self) -> list[Hit]:
        """The hits, each followed by the other side of its turn if it has that."""
        return [one for hit in self.hits for one in (hit, hit.side) if one]
