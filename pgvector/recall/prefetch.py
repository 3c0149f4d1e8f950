"""Ambient recall: the memories put before a turn, and those kept when a conversation is compressed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from cachetools import LRUCache

from ..hosts.transcript import exchanges
from ..model import Hit, Recall, RecallRequest, Scope, now
from ..settings import Settings
from ..text.cleaning import without_recalled
from .deadline import Deadline

if TYPE_CHECKING:
    from ..store.queries import Kind

RecallCallable: TypeAlias = "Callable[[Sequence[Kind], RecallRequest], Sequence[Recall]]"

QUESTIONS_MAX = 6
QUESTION_CHARS_MAX = 2000
COMPRESSION_CHARS_MAX = 1000
NEAREST_SHARE = 0.5
NAME_CHARS_MIN = 4
SESSIONS_MAX = 1000
# The session of a client of the API server that names none: a hash of how the conversation begins.
SHARED_SESSION = re.compile(r"api-[0-9a-f]{16}")


class Prefetch:
    """Recalls before a turn and before a compression. Safe for any thread.

    `recall` answers a request for each kind of rows within its budget, `floor` is the lowest cosine of related texts,
    None while it is not known, and `database_away` is whether the last use of the database failed.
    """

    def __init__(
        self,
        settings: Settings,
        recall: RecallCallable,
        floor: Callable[[], float | None],
        database_away: Callable[[], bool],
    ) -> None:
        self._settings, self._recall = settings, recall
        self._floor, self._database_away = floor, database_away
        self._lock = threading.Lock()
        self._started: LRUCache[tuple[str, str], datetime] = LRUCache(SESSIONS_MAX)

    @property
    def enabled(self) -> bool:
        """Whether the settings want memories before a turn."""
        return self._settings.prefetch_limit > 0 and self._settings.recall_mode != "tools"

    def begin(self, theme: str | None, session_id: str) -> None:
        """Note that a conversation begins. Its session may have turns of others, whose beginning was the same."""
        if theme is not None and SHARED_SESSION.fullmatch(session_id):
            with self._lock:
                self._started[theme, session_id] = now()

    def before_turn(self, theme: str, query: str, session_id: str) -> Recall:
        """The best entries and, by setting, turns of other conversations, within `prefetch_budget_s`."""
        settings = self._settings
        due = Deadline.before_turn(settings, database_away=self._database_away())
        with self._lock:
            started = self._started.get((theme, session_id))
        # The model has the turns of the running conversation in its context.
        scope = Scope(theme, (theme,), without_session=session_id, without_since=started)
        hits: list[Hit] = []
        degraded: dict[str, None] = {}
        kinds: tuple[Kind, ...] = ("entries", "turns") if settings.prefetch_turns else ("entries",)
        request = RecallRequest(query=query, scope=scope, limit=2 * settings.prefetch_limit, budget_s=due.left_s)
        for recall in self._recall(kinds, request):
            degraded.update(dict.fromkeys(recall.degraded))
            hits += recall.hits
        return Recall(tuple(relevant(hits, self._floor())[: settings.prefetch_limit]), tuple(degraded))

    def before_compression(self, theme: str, messages: Sequence[Mapping[str, Any]]) -> str:
        """The saved memories that matter to a conversation which is about to be compressed; empty when none do.

        What was recalled for its messages is lost with them, because a summary has only what was said.
        """
        from . import render

        settings = self._settings
        questions = [text for user, _ in exchanges(messages) if (text := without_recalled(user))]
        query = "\n".join(questions[-QUESTIONS_MAX:])[-QUESTION_CHARS_MAX:]
        if not query or not self.enabled or self._database_away():
            return ""
        request = RecallRequest(
            query=query,
            scope=Scope(theme, (theme,)),
            limit=settings.prefetch_limit,
            budget_s=settings.prefetch_budget_s,
        )
        [recall] = self._recall(("entries",), request)
        floor = self._floor()
        # Whole messages share some word with almost any entry, so similarity alone decides.
        hits = [hit for hit in recall.hits if floor is not None and (hit.similarity or -1.0) >= floor]
        return render.block(Recall(tuple(hits)), chars_max=min(COMPRESSION_CHARS_MAX, settings.prefetch_chars_max))


def relevant(hits: Sequence[Hit], floor: float | None) -> list[Hit]:
    """The hits that are related to the question, best first; all of them when the floor or the vectors are unknown.

    The similarity of a hit has to be above the floor and at least half way from there to the highest: in a small theme
    every row is among the nearest, and some models give all texts a similarity above any floor. A hit that has a word
    of the question with a digit in it needs neither.
    """
    nearest = max((hit.similarity for hit in hits if hit.similarity is not None), default=0.0)
    least = None if floor is None else floor + NEAREST_SHARE * max(0.0, nearest - floor)
    kept = [
        hit for hit in hits if least is None or hit.similarity is None or hit.similarity >= least or _shares_name(hit)
    ]
    return sorted(kept, key=lambda hit: -hit.score)


def _shares_name(hit: Hit) -> bool:
    return any(len(word) >= NAME_CHARS_MIN and any(map(str.isdigit, word)) for word in hit.matched)
