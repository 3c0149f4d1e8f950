"""Ambient recall: the memories put before a turn."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..hosts.transcript import exchanges
from ..model import Hit, Recall, RecallRequest, Scope, now
from ..text.cleaning import without_recalled
from . import render

if TYPE_CHECKING:
    from ..runtime import Runtime
    from ..settings import Settings

BUDGET_AWAY_S = 0.3
QUESTIONS_MAX = 6
QUESTION_CHARS_MAX = 2000
LASTING_CHARS_MAX = 1000
NEAREST_SHARE = 0.5
NAME_CHARS_MIN = 4
# The session of a client of the API server that names none: a hash of how the conversation begins.
SHARED_SESSION = re.compile(r"api-[0-9a-f]{16}")


def offered(settings: Settings) -> bool:
    """Whether the settings let memories come unasked."""
    return settings.prefetch_limit > 0 and settings.recall_mode != "tools"


def begin(runtime: Runtime, theme: str | None, session_id: str) -> None:
    """A conversation begins. Those that begin alike may share its session, and do not know what the others said."""
    if theme is not None and SHARED_SESSION.fullmatch(session_id):
        runtime.begun.put((theme, session_id), now())


def ambient(runtime: Runtime, theme: str, query: str, session_id: str) -> Recall:
    """The best entries and, by setting, turns of other conversations, within `prefetch_budget_s`."""
    settings = runtime.settings
    # While the database is away, a turn must not wait the whole budget for nothing, and still notices its return.
    budget_s = settings.prefetch_budget_s
    deadline = time.monotonic() + (min(budget_s, BUDGET_AWAY_S) if runtime.writer.health.problem else budget_s)
    begun = runtime.begun.get((theme, session_id))
    hits: list[Hit] = []
    degraded: dict[str, None] = {}
    for kind in ("entries", "turns") if settings.prefetch_turns else ("entries",):
        request = RecallRequest(
            query=query,
            # A turn of the running conversation is in the model's context already.
            scope=Scope(theme, (theme,), without_session=session_id, without_since=begun),
            limit=2 * settings.prefetch_limit,
            budget_s=max(0.1, deadline - time.monotonic()),
        )
        recall = runtime.recall(kind, request)
        degraded.update(dict.fromkeys(recall.degraded))
        hits += recall.hits
    return Recall(tuple(relevant(hits, runtime.fitting.floor)[: settings.prefetch_limit]), tuple(degraded))


def lasting(runtime: Runtime, theme: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """The saved memories that matter to a conversation which is about to be compressed; empty when none do.

    What was recalled for its messages is lost with them, and a summary tells of what was said, not of what was known.
    """
    settings = runtime.settings
    asked = [text for user, _ in exchanges(messages) if (text := without_recalled(user))]
    query = "\n".join(asked[-QUESTIONS_MAX:])[-QUESTION_CHARS_MAX:]
    if not query or not offered(settings) or runtime.writer.health.problem:
        return ""
    request = RecallRequest(
        query=query, scope=Scope(theme, (theme,)), limit=settings.prefetch_limit, budget_s=settings.prefetch_budget_s
    )
    recall = runtime.recall("entries", request)
    floor = runtime.fitting.floor
    # Whole messages share some word with almost any entry: only meaning tells what has to do with them.
    hits = [hit for hit in recall.hits if floor is not None and (hit.similarity or -1.0) >= floor]
    return (
        render.block(Recall(tuple(hits)), chars_max=min(LASTING_CHARS_MAX, settings.prefetch_chars_max), query="")
        if hits
        else ""
    )


def relevant(hits: Sequence[Hit], floor: float | None) -> list[Hit]:
    """The hits that have to do with the question, best first; without a floor or vectors, as the legs ranked them.

    A hit lies above the floor and at least half way from there to the nearest one: in a small theme every row is among
    the nearest, and a model that calls all texts alike puts many above any floor. A hit that names what the question
    names, by a word with a digit in it, needs no nearness.
    """
    nearest = max((hit.similarity for hit in hits if hit.similarity is not None), default=0.0)
    least = None if floor is None else floor + NEAREST_SHARE * max(0.0, nearest - floor)
    kept = [hit for hit in hits if least is None or hit.similarity is None or hit.similarity >= least or _named(hit)]
    return sorted(kept, key=lambda hit: -hit.score)


def _named(hit: Hit) -> bool:
    return any(len(word) >= NAME_CHARS_MIN and any(map(str.isdigit, word)) for word in hit.matched)
