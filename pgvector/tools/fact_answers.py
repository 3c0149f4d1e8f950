"""The JSON that the tools for facts answer: facts in their notation as quoted data, none of them cut."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..facts.block import CHARS_MIN, line
from ..facts.notation import Notation
from ..facts.state import FactState, pressure, text_of
from ..model import FactKind, FactWritten, Hit, Recall
from ..recall.render import public_reasons
from ..settings import Settings
from ..text import times
from ..text.sanitize import safe_line

if TYPE_CHECKING:
    from ..store.facts import Fact

PENDING = {"status": "accepted, pending", "note": "the store does not answer yet; it is stored later, once"}
NAMES: Mapping[FactKind, str] = {
    "C": "constraints", "D": "decisions", "V": "values", "?": "open_questions", "done": "done", "obs": "obsolete"
}  # fmt: skip
SCOPES_SHOWN_MAX = 20
# Room for what an answer has beside its facts.
_FRAME_CHARS = 600


def of_accepted(event: FactWritten) -> dict[str, Any]:
    """The answer of `memory_write` about a fact that is in the outbox."""
    fact = line(Notation(event.kind, event.target, event.content))
    return {"status": "accepted", "theme": event.theme, "fact": fact}


def of_stored(
    event: FactWritten, stored: Fact | None, displaced: Sequence[Fact], state: FactState, settings: Settings
) -> dict[str, Any]:
    """The answer of `memory_write` about a fact that is stored, and the one that it supersedes."""
    answer = of_accepted(event) | {"status": "stored"}
    if stored is None:
        answer |= {"status": "unchanged", "note": "the same fact, or a newer one in its place, is there already"}
    else:
        answer |= {"id": stored.id, **({"scope": safe_line(stored.scope, 100)} if stored.scope else {})}
        if stored.status == "superseded":
            answer["note"] = "a newer fact is there already: this one is in the history"
    if displaced:
        room = settings.recall_chars_max - len(answer["fact"])
        answer["superseded"], left_out = _fitting(map(_of_fact, displaced), room)
        answer |= left_out
    return answer | of_gauge(state, settings)


def of_gauge(state: FactState, settings: Settings) -> dict[str, Any]:
    """How full the room for active facts is, and what makes room, if anything does."""
    relief = pressure(state.percent, settings)
    gauge = {"percent": state.percent, "chars": state.chars, "chars_max": state.chars_max}
    return {"gauge": gauge, **({"pressure": relief} if relief else {})}


def of_closed(before: FactState | None, after: FactState, settings: Settings) -> dict[str, Any]:
    """The part of the answer of `memory_tick` about scopes: the open ones, and those closed since `before`."""
    open_now = [scope.label for scope in after.scopes]
    closed = [scope.label for scope in before.scopes if scope.label not in open_now] if before else []
    chars_max = settings.recall_chars_max
    shown = {"closed": _labels(closed, chars_max), "open_scopes": _labels(open_now, chars_max)}
    return {**shown, **of_gauge(after, settings)}


def of_status(state: FactState, settings: Settings) -> dict[str, Any]:
    """The answer of `memory_status`."""
    scopes = _labels((scope.label for scope in state.scopes), settings.recall_chars_max)
    # A sign of a text can have two characters in JSON.
    room = max(CHARS_MIN, (settings.recall_chars_max - _FRAME_CHARS) // 2)
    return {
        "block": text_of(state, settings, room), "theme": state.theme, "hot_facts": state.count, "open_scopes": scopes,
        **of_gauge(state, settings),
    }  # fmt: skip


def of_search(recall: Recall, *, query: str, scope: str, own: Sequence[str], chars_max: int) -> dict[str, Any]:
    """The answer of `memory_search`: the facts, best first, as many as `chars_max` characters have room for.

    Facts of another theme than the caller's `own` ones name it.
    """
    answer = {"query": safe_line(query, 120), **({"scope": safe_line(scope, 100)} if scope else {})}
    facts, left_out = _fitting((_of_hit(hit, own) for hit in recall.hits), chars_max)
    return {"facts": facts, "count": len(facts), **left_out, **answer, "degraded": public_reasons(recall)}


def of_reflection(
    recall: Recall, earlier: Sequence[Fact], *, topic: str, own: Sequence[str], chars_max: int
) -> dict[str, Any]:
    """The answer of `memory_reflect`: the facts by kind, and the earlier ones in whose place they stand."""
    facts, left_out = _fitting((_of_hit(hit, own) for hit in recall.hits), chars_max * 2 // 3)
    kinds = {hit.id: _fact_of(hit).kind for hit in recall.hits}
    answer: dict[str, Any] = {"topic": safe_line(topic, 120), "count": len(facts)}
    for kind, name in NAMES.items():
        if of_kind := [fact for fact in facts if kinds[fact["id"]] == kind]:
            answer[name] = of_kind
    past, past_left_out = _fitting(map(_of_fact, earlier), chars_max // 3)
    if past:
        answer["superseded"] = past
    return {**answer, **(left_out or past_left_out), "degraded": public_reasons(recall)}


def of_export(theme: str, facts: Sequence[Fact], *, more: bool, chars_max: int) -> dict[str, Any]:
    """The answer of `memory_export`: one fact a line; `more` is whether there are others."""
    lines: list[str] = []
    room = chars_max - _FRAME_CHARS
    for fact in facts:
        shown = line(Notation(fact.kind, fact.target, fact.content))
        room -= len(json.dumps(f"{shown}\n", ensure_ascii=False))
        if room < 0:
            break
        lines.append(shown)
    cut = more or len(lines) < len(facts)
    note = {"note": "there are more; hermes-pgvector facts export prints all"} if cut else {}
    return {"theme": theme, "facts": "\n".join(lines), "count": len(lines), **note}


def _fitting(frames: Iterable[dict[str, Any]], chars_max: int) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The first frames that have room, and the number of the others under `left_out`."""
    frames = list(frames)
    room, shown = chars_max - _FRAME_CHARS, 0
    for frame in frames:
        room -= len(json.dumps(frame, ensure_ascii=False)) + 2
        if room < 0:
            break
        shown += 1
    return frames[:shown], {"left_out": len(frames) - shown} if shown < len(frames) else {}


def _fact_of(hit: Hit) -> Notation:
    found = hit.metadata["fact"]
    return Notation(found["kind"], hit.target, found["content"])


def _of_hit(hit: Hit, own: Sequence[str]) -> dict[str, Any]:
    found = hit.metadata["fact"]
    scope = {"scope": safe_line(found["scope"], 100)} if found["scope"] else {}
    if hit.theme not in own:
        scope["theme"] = safe_line(hit.theme, 200)
    why = {"similarity": None if hit.similarity is None else round(hit.similarity, 3)}
    return {
        "id": hit.id, "fact": line(_fact_of(hit)), **scope, "status": found["status"], "time": times.utc_text(hit.at),
        "score": round(hit.score, 3), **why,
    }  # fmt: skip


def _of_fact(fact: Fact) -> dict[str, Any]:
    scope = {"scope": safe_line(fact.scope, 100)} if fact.scope else {}
    shown = line(Notation(fact.kind, fact.target, fact.content))
    return {"id": fact.id, "fact": shown, **scope, "status": fact.status, "time": times.utc_text(fact.written_at)}


def _labels(labels: Iterable[str], chars_max: int) -> list[str]:
    """The first labels, as many as a fifth of `chars_max` characters has room for."""
    shown, room = list[str](), chars_max // 5
    for label in islice(labels, SCOPES_SHOWN_MAX):
        text = safe_line(label, 100)
        room -= len(json.dumps(text, ensure_ascii=False)) + 2
        if room < 0:
            break
        shown.append(text)
    return shown
