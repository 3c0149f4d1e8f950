"""The recall before a turn: the memories put before a turn, and those kept when a conversation is compressed.

What stands in the context of the session is not put before a turn again: its turns, the memories of earlier turns that
the host sends again, and the entries in the system prompt. What a compression takes away is found again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from cachetools import LRUCache

from ..hosts.environment import user_zone
from ..hosts.runtime_messages import JOB
from ..hosts.transcript import exchanges
from ..model import Hit, Recall, RecallRequest, Scope, now
from ..settings import Settings
from ..text.cleaning import clean, without_recalled
from .deadline import Deadline

if TYPE_CHECKING:
    from ..store.queries import Kind
    from .context import Context, ContextReader

RecallCallable: TypeAlias = "Callable[[Sequence[Kind], RecallRequest], Sequence[Recall]]"

QUESTIONS_MAX = 6
QUESTION_CHARS_MAX = 2000
COMPRESSION_CHARS_MAX = 1000
NEAREST_SHARE = 0.5
NAME_CHARS_MIN = 4
SESSIONS_MAX = 1000
# So many messages of a transcript show whether the host sends its own.
MESSAGES_MAX = 1000
# A long hit in a full block gets less than its share of the room: each has a label, and the block a heading.
LABEL_CHARS = 80
# How many times `prefetch_limit` more hits are asked for when the context has memories that may be found again.
REPEATED_SHARE_MAX = 2
# With less time left, no recall is repeated without an origin that crowds out others.
AGAIN_S_MIN = 0.1
# The session of a client of the API server that names none: a hash of how the conversation begins.
SHARED_SESSION = re.compile(r"api-[0-9a-f]{16}")


class Prefetch:
    """Recalls before a turn and before a compression. Safe for any thread.

    `recall` answers a request for each kind of rows within its budget, `floor` is the lowest cosine of related texts,
    None while it is not known, and `database_away` is whether the last use of the database failed. `home` has
    the host's record of its sessions. `reads` returns the themes that a theme reads, `hot` the block of a theme's hot
    facts, of at most so many characters and within so many seconds, or nothing where they are not wanted.
    """

    def __init__(
        self,
        settings: Settings,
        recall: RecallCallable,
        floor: Callable[[], float | None],
        database_away: Callable[[], bool],
        home: Path,
        reads: Callable[[str], tuple[str, ...]] = lambda theme: (theme,),
        hot: Callable[[str, int, float], str] = lambda *_: "",
    ) -> None:
        self._settings, self._recall, self._home, self._reads, self._hot = settings, recall, home, reads, hot
        self._floor, self._database_away = floor, database_away
        self._lock = threading.Lock()
        self._started: LRUCache[tuple[str, str], datetime] = LRUCache(SESSIONS_MAX)
        self._replayed: LRUCache[str, bool] = LRUCache(SESSIONS_MAX)

    @property
    def enabled(self) -> bool:
        """Whether the settings want memories before a turn."""
        return self._settings.prefetch_limit > 0 and self._settings.recall_mode != "tools"

    @property
    def _has_tools(self) -> bool:
        return self._settings.recall_mode != "context"

    def begin(self, theme: str | None, session_id: str) -> None:
        """Note that a conversation begins. Its session may have turns of others, whose beginning was the same."""
        if theme is not None and SHARED_SESSION.fullmatch(session_id):
            with self._lock:
                self._started[theme, session_id] = now()

    @cached_property
    def _contexts(self) -> ContextReader:
        # Its modules take long to import, and the first hooks of a process need none of them.
        from .context import ContextReader

        return ContextReader(self._home, self._settings.prefetch_shown_max)

    def note_replay(self, session_id: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Note whether the host sends its own record of a session: then earlier messages have what was put before them.

        A client of the API server may send the messages of a session itself.
        """
        recent = messages[-MESSAGES_MAX:]
        earlier = [message for message in recent if message.get("role") == "user"][:-1]
        if earlier:
            with self._lock:
                self._replayed[session_id] = any(message.get("api_content") for message in earlier)

    def text_before_turn(
        self, theme: str, query: str, session_id: str, by_client: bool = False, own: Sequence[str] = ()
    ) -> tuple[str, int]:
        """The hot facts, if the context lacks them, and the memories as `before_turn` finds them, within its budget.

        Returns one text of at most `prefetch_chars_max` characters, and how many memories are in it.
        """
        from .render import block

        due, room, query = self._due(), self._settings.prefetch_chars_max, JOB.sub("", clean(query).strip())
        context = self._context(session_id, by_client, due)
        facts = self._hot(theme, room, due.facts_s)
        facts = "" if facts == context.shown.facts else facts
        room -= len(f"{facts}\n\n") if facts else 0
        recall = self._before_turn(theme, query, session_id, context, due, room) if self.enabled else Recall()
        memories = block(recall, chars_max=room, query=query, own=own, tools=self._has_tools, zone=user_zone())
        return "\n\n".join(filter(None, (facts, memories))), len(recall.hits)

    def before_turn(self, theme: str, query: str, session_id: str, by_client: bool = False) -> Recall:
        """The best entries and, by setting, turns that the context lacks, within `prefetch_budget_s`.

        `by_client` is whether the messages of the session may come from a client instead of the host's record.
        """
        due = self._due()
        context = self._context(session_id, by_client, due)
        return self._before_turn(theme, query, session_id, context, due, self._settings.prefetch_chars_max)

    def load(self) -> None:
        """Import and read what the first recall needs, which takes long."""
        import numpy  # noqa: F401

        from ..text import suspicion
        from . import context, origins, quarantine, render, selection  # noqa: F401

        suspicion.load()

    def _due(self) -> Deadline:
        # Before the time runs.
        self.load()
        return Deadline.before_turn(self._settings, database_away=self._database_away())

    def _context(self, session_id: str, by_client: bool, due: Deadline) -> Context:
        context = self._contexts.read(session_id, due.context_s)
        with self._lock:
            by_client = by_client and not self._replayed.get(session_id)
        return context.prompt_only() if by_client else context

    def _before_turn(
        self, theme: str, query: str, session_id: str, context: Context, due: Deadline, chars_max: int
    ) -> Recall:
        from ..text.alike import comparable
        from . import origins
        from .grouping import newest_of_kinds
        from .render import HIT_CHARS_MIN

        settings, asked = self._settings, comparable(query)
        with self._lock:
            started = self._started.get((theme, session_id))
        since = context.since or started
        scope = Scope(theme, self._reads(theme), without_session=session_id, without_since=since)
        limit = settings.prefetch_limit
        more = min(context.shown.memories, REPEATED_SHARE_MAX * limit)
        kinds: tuple[Kind, ...] = ("entries", "turns") if settings.prefetch_turns else ("entries",)
        request = RecallRequest(
            query=query,
            scope=scope,
            limit=2 * limit + more,
            budget_s=due.left_s,
            outside=settings.prefetch_outside,
        )
        recalls = list(self._recall(kinds, request))
        related = self._related(recalls, asked)
        others = (scope.themes or ())[1:]
        crowd = origins.crowding(recalls, request.limit, others)
        if crowd and due.left_s > AGAIN_S_MIN:
            again = replace(request, scope=origins.without(scope, crowd), budget_s=due.left_s)
            recalls += (rest := self._recall(kinds, again))
            related = origins.added(related, self._related(rest, asked), scope)
        room = max(HIT_CHARS_MIN, chars_max // max(1, limit) - LABEL_CHARS)
        shown, pointers = ([hit for hit in related if hit.pointer is pointer] for pointer in (False, True))
        fresh = (
            hit
            for hit in [*newest_of_kinds(shown), *pointers]
            if not context.shown.holds(hit, query, room=room, chars_max=chars_max) and self._may_be_shown(hit)
        )
        degraded = dict.fromkeys(reason for recall in recalls for reason in recall.degraded)
        return Recall(tuple(origins.shared_out(fresh, limit, others)), tuple(degraded))

    def _related(self, recalls: Sequence[Recall], asked: str) -> list[Hit]:
        """The hits of a recall that are related to the question, without the same question in an earlier turn.

        That tells nothing, and is more similar than any answer, unless it says where its answer is.
        """
        from ..text.alike import comparable
        from .render import left_out

        hits: list[Hit] = []
        best: list[Hit] = []
        for recall in recalls:
            # An entry that is left out says nothing but which tool to ask.
            texts = [hit for hit in recall.texts if self._has_tools or not left_out(hit)]
            repeated = {id(hit) for hit in texts if hit.role == "user" and comparable(hit.content) == asked}
            hits += [hit for hit in texts if id(hit) not in repeated or (hit.withheld and self._has_tools)]
            own = [hit for hit in texts if id(hit) not in repeated and not hit.withheld]
            best += own[: 2 * self._settings.prefetch_limit]
        return relevant(hits, self._floor(), best)

    def _may_be_shown(self, hit: Hit) -> bool:
        from .quarantine import suspicions

        return not (self._settings.hide_suspicious and suspicions(hit))

    def before_compression(self, theme: str, messages: Sequence[Mapping[str, Any]]) -> str:
        """The saved memories that matter to a conversation which is about to be compressed; empty when none do.

        What was recalled for its messages is lost with them, because a summary has only what was said.
        """
        settings = self._settings
        questions = [text for user, _ in exchanges(messages) if (text := without_recalled(user))]
        query = "\n".join(questions[-QUESTIONS_MAX:])[-QUESTION_CHARS_MAX:]
        if not query or not self.enabled or self._database_away():
            return ""
        from .render import block

        themes = self._reads(theme)
        request = RecallRequest(
            query=query,
            scope=Scope(theme, themes),
            limit=settings.prefetch_limit,
            budget_s=settings.prefetch_budget_s,
            outside=settings.prefetch_outside,
        )
        [recall] = self._recall(("entries",), request)
        floor = self._floor()
        # Whole messages share some word with almost any entry, so similarity alone decides.
        shown = (hit for hit in recall.hits if not hit.pointer)
        near = (hit for hit in shown if floor is not None and (hit.similarity or -1.0) >= floor)
        hits = list(filter(self._may_be_shown, near))
        chars_max = min(COMPRESSION_CHARS_MAX, settings.prefetch_chars_max)
        # The rows of a person are in other themes than the one that asks.
        own = dict.fromkeys((theme, *(hit.theme for hit in hits if hit.theme not in themes[1:])))
        return block(Recall(tuple(hits)), chars_max=chars_max, own=tuple(own), zone=user_zone())


def relevant(hits: Sequence[Hit], floor: float | None, best: Sequence[Hit] | None = None) -> list[Hit]:
    """The hits that are related to the question, best first; all of them when the floor or the vectors are unknown.

    The similarity of a hit has to be above the floor and at least half way from there to the highest of the `best`: in
    a small theme every row is among the nearest, and some models give all texts a similarity above any floor. A hit
    that has a word of the question with a digit in it needs neither. Pointers are last.
    """
    nearest = max(
        (hit.similarity for hit in (hits if best is None else best) if hit.similarity is not None), default=0.0
    )
    least = None if floor is None else floor + NEAREST_SHARE * max(0.0, nearest - floor)
    kept = [
        hit for hit in hits if least is None or hit.similarity is None or hit.similarity >= least or _shares_name(hit)
    ]
    return sorted(kept, key=lambda hit: (hit.pointer, -hit.score))


def _shares_name(hit: Hit) -> bool:
    return any(len(word) >= NAME_CHARS_MIN and any(map(str.isdigit, word)) for word in hit.matched)
