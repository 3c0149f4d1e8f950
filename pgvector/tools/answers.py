"""The JSON that each tool answers: hits and entries as quoted data of a bounded size. Pure."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from ..hosts.provenance import source_of
from ..model import TARGETS, Add, Hit, Period, Recall, Update
from ..recall.quarantine import suspicions
from ..recall.render import HIT_CHARS_MIN, best_passage, even_shares, public_reasons
from ..text import times
from ..text.sanitize import cut_at_word, safe_line, visible
from ..text.tags import TAG_CHARS_MAX, TAGS_MAX

if TYPE_CHECKING:
    from ..store.entries import Entry

_MATCHED_MAX, _PERIOD_CHARS_MAX = 8, 60
# What a hit tells of the other side of its turn.
_OF_SIDE = ("id", "role", "source", "content", "cut")
# The characters of an answer that are not its entries.
_FRAME_CHARS = 500

_encoded = json.JSONEncoder(ensure_ascii=False).encode


def of_recall(recall: Recall, *, query: str, scope: str, chars_max: int, suspicious: int = 0) -> dict[str, Any]:
    """The answer of a recall tool: at most `chars_max` characters as `json.dumps(…, ensure_ascii=False)`.

    Long contents share the room evenly. A hit of which only a passage is shown has `"cut": true`. When not even the
    frames of all hits fit, the last hits are left out and `"left_out"` counts them. The turns around the hits get the
    room that the hits leave. The other side of a turn is in the hit of the first. `suspicious` rows were left out
    because they look like an attack.
    """
    texts = recall.texts
    share = max(HIT_CHARS_MIN, chars_max // max(1, len(texts)))
    # The hits of an answer repeat few words and names.
    line = cache(safe_line)
    answer: dict[str, Any] = {
        "hits": [_frame(hit, best_passage(hit.content, query, share)[:chars_max], line) for hit in texts],
        "count": len(texts),
        "scope": safe_line(scope, 60),
        "query": safe_line(query, 120),
        **_period(recall.period),
        "degraded": public_reasons(recall),
        **({"suspicious_left_out": suspicious} if suspicious else {}),
    }
    if _size(answer) > chars_max:
        _shorten(answer, chars_max)
    _nest_sides(answer, recall.hits)
    _add_context(answer, recall.hits[: answer["count"]], chars_max)
    return answer


def _period(period: Period | None) -> dict[str, Any]:
    """That rows of the time that the question names were favoured."""
    if period is None:
        return {}
    times_of = {"since": times.utc_text(period.since), "until": times.utc_text(period.until)}
    return {"period": {"words": safe_line(period.words, _PERIOD_CHARS_MAX), **times_of, "note": "counted double"}}


def of_accepted(event: Add | Update, old: Entry | None) -> dict[str, Any]:
    """The answer of `remember` and `update` about an entry that is in the outbox. `old` is the one that it replaces."""
    tags = event.tags if event.tags is not None else old.tags if old else ()
    kept_until = old and old.expires_at and old.expires_at.isoformat()
    expires = event.expires or kept_until or times.NEVER
    return {
        "status": "accepted",
        "theme": event.theme,
        "time": times.utc_text(event.at),
        "source": safe_line(source_of("", event.metadata), 20),
        # Read in the transcript of a host; of a client of MCP, nobody reads one.
        **({"save_id": event.metadata["saves"][0]} if "client" not in event.metadata else {}),
        **({"target": event.target} if isinstance(event, Add) else {}),
        **({"replaces": old.id} if old else {}),
        **_labels(tags, None if expires == times.NEVER else datetime.fromisoformat(expires)),
    }


def of_stored(found: Entry, event: Add | Update) -> dict[str, Any]:
    """What `remember` and `update` add about an entry that is stored, which may have been there before."""
    there = {"already_there": True} if isinstance(event, Add) and found.created_at != event.at else {}
    # It may have had tags and an expiry of its own.
    return {"status": "stored", "id": found.id, **there, **_labels(found.tags, found.expires_at)}


def of_unstored(waited_s: float) -> dict[str, Any]:
    """What is added about an entry that is not stored yet. The cause is for operators only: it may name hosts."""
    return {"degraded": [f"not stored within {waited_s:g} s; it will be stored later"]}


def of_forgotten(removed: Entry, chars_max: int, *, file: str) -> dict[str, Any]:
    """The answer of `forget`. `file` is the memory file that still has the entry; empty when there is none."""
    answer = {"status": "forgotten", **of_entry(removed, chars_max)}
    return answer | ({"note": f"it is still in {file}; remove it there with the memory tool"} if file else {})


def of_list(
    theme: str, counts: Mapping[str, tuple[int, datetime]], found: Sequence[Entry], limit: int, chars_max: int
) -> dict[str, Any]:
    """The answer of `list_memories`: `counts` and last change by target, and the newest entries, at most `limit`."""
    shown = _of_entries(found, chars_max)
    rest = {"next": shown[-1]["id"]} if shown and (len(found) == limit or len(shown) < len(found)) else {}
    last_change = max((at for _, at in counts.values()), default=None)
    return {
        "theme": theme,
        "counts": {target: counts[target][0] if target in counts else 0 for target in TARGETS},
        "newest": last_change and times.utc_text(last_change),
        "entries": shown,
        **rest,
    }


def of_entry(found: Entry, chars_max: int) -> dict[str, Any]:
    """One entry, as `list_memories` shows it."""
    return _of_entries([found], chars_max)[0]


def _of_entries(found: Sequence[Entry], chars_max: int) -> list[dict[str, Any]]:
    """Stored entries, in the same bounds as the answer of a recall."""
    hits = tuple(
        Hit(
            id=entry.id, theme=entry.theme, content=entry.content, at=entry.updated_at, target=entry.target,
            metadata=entry.metadata, tags=tuple(entry.tags), expires_at=entry.expires_at,
        )
        for entry in found
    )  # fmt: skip
    shown = of_recall(Recall(hits), query="", scope="", chars_max=chars_max - _FRAME_CHARS)["hits"]
    return [{name: value for name, value in hit.items() if name not in ("score", "why")} for hit in shown]


def _shorten(answer: dict[str, Any], chars_max: int) -> None:
    """Cut the contents of the answer, and remove its last hits when that is not enough."""
    frames = answer["hits"]
    needs = [_escaped_chars(frame["content"]) for frame in frames]
    sizes = [_size(frame | {"content": "", "cut": True}) + len(", ") for frame in frames]
    room = chars_max - _size(answer | {"hits": []}) - len(', "left_out": 1000')
    shares = even_shares(sizes, needs, room)
    count = len(shares)
    for frame, chars in zip(frames, shares, strict=False):
        shown = _cut_escaped(frame["content"], chars)
        if shown != frame["content"]:
            frame |= {"content": shown, "cut": True}
    left_out = {"left_out": len(frames) - count} if count < len(frames) else {}
    answer |= {"hits": frames[:count], "count": count} | left_out


def _nest_sides(answer: dict[str, Any], hits: Sequence[Hit]) -> None:
    """Move the frames of second sides into those of their hits."""
    frames = iter(answer["hits"])
    shown = []
    for hit, frame in zip(hits, frames, strict=False):
        second = next(frames, None) if hit.side else None
        if second:
            frame["side"] = {name: value for name, value in second.items() if name in _OF_SIDE}
        shown.append(frame)
    answer |= {"hits": shown, "count": len(shown)}
    if len(shown) < len(hits):
        answer["left_out"] = len(hits) - len(shown)
    else:
        answer.pop("left_out", None)


def _add_context(answer: dict[str, Any], hits: Sequence[Hit], chars_max: int) -> None:
    """Add the turns around each hit, the first hits first, as far as there is room."""
    waiting = sum(len(hit.context) for hit in hits)
    room = chars_max - _size(answer) if waiting else 0
    for frame, hit in zip(answer["hits"], hits, strict=True):
        shown = []
        for neighbour in hit.context:
            turn = {"role": safe_line(neighbour.role, 20), "time": times.utc_text(neighbour.at), "content": ""}
            source = safe_line(source_of(neighbour.role, neighbour.metadata), 20)
            turn |= {"source": source} if source != neighbour.role else {}
            share = room // waiting - _size(turn) - len(', "context": [], ')
            waiting -= 1
            turn["content"] = _cut_escaped(visible(neighbour.content[:chars_max]).strip(), max(0, share))
            if turn["content"]:
                shown.append(turn)
                room -= _size(turn) + len(', "context": [], ')
        if shown:
            frame["context"] = shown


def _frame(hit: Hit, passage: str, line: Callable[[str, int], str]) -> dict[str, Any]:
    frame: dict[str, Any] = {
        "id": hit.id,
        "theme": line(hit.theme, 128),
        "content": visible(passage).strip(),
        "time": times.utc_text(hit.at),
        "score": round(hit.score, 3),
        "why": {
            "similarity": None if hit.similarity is None else round(hit.similarity, 3),
            **({} if hit.relevance is None else {"relevance": round(hit.relevance, 3)}),
            "words": [line(word, 40) for word in hit.matched[:_MATCHED_MAX]],
        },
    }
    if hit.said > 1:
        frame["said"] = hit.said
    if hit.alike:
        frame["alike"] = hit.alike
    if hit.newer:
        frame["older"] = {"than": hit.newer[0], "time": times.utc_text(hit.newer[1])}
    source = line(source_of(hit.role, hit.metadata), 20)
    if hit.target:
        frame |= {"target": hit.target, "source": source, **_labels(hit.tags, hit.expires_at)}
    else:
        frame |= {"role": line(hit.role, 20), "session_id": line(hit.session_id, 200)}
        # Of what a person or the assistant said, the role is enough.
        frame |= {"source": source} if source != hit.role else {}
    if passage != hit.content:
        frame["cut"] = True
    if why := suspicions(hit):
        frame["suspicious"] = list(why)
    return frame


def _labels(tags: Sequence[str], expires_at: datetime | None) -> dict[str, Any]:
    """The tags and the expiry of an entry, where it has them."""
    shown = {"tags": [safe_line(tag, TAG_CHARS_MAX) for tag in tags[:TAGS_MAX]]} if tags else {}
    return shown | ({"expires": times.utc_text(expires_at)} if expires_at else {})


def _cut_escaped(text: str, chars: int) -> str:
    """The text, or its longest beginning with `…`, of at most `chars` characters once JSON has escaped it."""
    if _escaped_chars(text) <= chars:
        return text
    end = bisect_right(range(len(text)), chars - 1, key=lambda end: _escaped_chars(text[:end]))
    # The last character alone can be too long: escaped it may have six.
    return cut_at_word(text, min(end, len(text) - 1)) if end > 0 else ""


def _escaped_chars(text: str) -> int:
    return _size(text) - 2


def _size(value: Any) -> int:
    return len(_encoded(value))
