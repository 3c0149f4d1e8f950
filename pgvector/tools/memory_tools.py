"""The tools by which an agent looks after the memory of its theme itself: remember, forget, list_memories."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..errors import BadArgument, DatabaseUnavailable, Refused
from ..model import TARGETS, Add, Caller, Hit, Recall, Target, now
from ..recall.render import as_json, source
from ..runtime import Runtime
from ..store import entries
from ..text.cleaning import clean
from . import arguments as given

LIMIT_DEFAULT = 20
METADATA_CHARS_MAX = 4000
# What says of an entry where it comes from; a model must not claim it.
OURS = frozenset({"origin", "session_id", "context", "history_id"})
# What stands around the entries of an answer.
FRAME_CHARS = 500
ID_MAX = (1 << 63) - 1
FILES = {"memory": "MEMORY.md", "user": "USER.md"}

_TARGET = {"type": "string", "enum": list(TARGETS)}

SCHEMAS: tuple[dict[str, Any], ...] = (
    {
        "name": "remember",
        "description": "Keep a fact in the durable memory of this theme, for all its agents on all hosts, without "
        "putting it into your own notes. It stays until it is forgotten.",
        "parameters": {
            "type": "object",
            "properties": {
                "content": {"type": "string", "description": "One fact, in words that stand on their own"},
                "target": {**_TARGET, "description": "memory: about the work (usual); user: about the user"},
                "metadata": {"type": "object", "description": "Anything to be kept with it, as JSON"},
                "sync": {"type": "boolean", "description": "true: wait until it is stored, and tell its id"},
            },
            "required": ["content"],
        },
    },
    {
        "name": "forget",
        "description": "Take one entry out of the memory of this theme. An operator can still bring it back.",
        "parameters": {
            "type": "object",
            "properties": {"id": {"type": "integer", "description": "Its id in list_memories or recall_memory"}},
            "required": ["id"],
        },
    },
    {
        "name": "list_memories",
        "description": "What the memory of this theme holds: how many entries, and the newest of them.",
        "parameters": {
            "type": "object",
            "properties": {
                "target": {**_TARGET, "description": "memory, user; leave out for both"},
                "limit": {"type": "integer", "minimum": 1, "description": f"Most entries (default {LIMIT_DEFAULT})"},
                "before": {"type": "integer", "description": "Only older ones than this id: the `next` of an answer"},
            },
        },
    },
)


def call(runtime: Runtime, name: str, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """Run one of the tools of SCHEMAS and return its answer. Raises PgvectorError."""
    given.check(next(schema for schema in SCHEMAS if schema["name"] == name), arguments)
    run = {"remember": _remember, "forget": _forget, "list_memories": _list}[name]
    return run(runtime, arguments, caller)


def _remember(runtime: Runtime, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    if caller.off_record:
        raise Refused("nothing is stored, because this session is off the record")
    most = runtime.settings.content_chars_max
    content = clean(given.text(arguments, "content")).strip()
    if not content:
        raise BadArgument("content is missing or empty; say what to remember")
    if len(content) > most:
        raise BadArgument(f"content has {len(content)} characters; it may have {most}")
    metadata = given.mapping(arguments, "metadata", METADATA_CHARS_MAX)
    if claimed := OURS & metadata.keys():
        raise BadArgument(f"metadata may not hold {', '.join(sorted(claimed))}; choose other names")
    target = given.choice(arguments, "target", TARGETS) or "memory"
    wait = given.switch(arguments, "sync")
    ours = {"origin": "remember", "session_id": caller.session_id, **caller.marks}
    event = Add(
        theme=caller.theme, session_id=caller.session_id, target=target, content=content, metadata={**metadata, **ours}
    )
    if not runtime.accept(event):
        raise DatabaseUnavailable("nothing is stored: the spool is full or cannot be written")
    answer = {
        "status": "accepted", "theme": caller.theme, "time": _utc(event.at), "source": source(ours), "target": target
    }  # fmt: skip
    return answer | (_when_stored(runtime, event) if wait else {})


def _when_stored(runtime: Runtime, event: Add) -> dict[str, Any]:
    """What became of an event, waited for as long as a recall may take."""
    budget_s = runtime.settings.recall_budget_s
    if runtime.writer.flush(budget_s):
        with runtime.database.connection(budget_s, within_s=budget_s) as connection:
            found = entries.same(connection, event.theme, event.target, event.content)
        if found is not None:
            known = {"already_there": True} if found.created_at != event.at else {}
            return {"status": "stored", "id": found.id, **known}
    # What is wrong is for operators: it may name hosts and roles.
    return {"degraded": [f"not stored within {budget_s:g} s; it will be, by itself"]}


def _forget(runtime: Runtime, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    number = given.whole(arguments, "id", 1, ID_MAX)
    if number is None:
        raise BadArgument("id is missing; list_memories and recall_memory tell it")
    at, budget_s = now(), runtime.settings.recall_budget_s
    with runtime.database.transaction(budget_s, budget_s, within_s=budget_s) as connection:
        gone = entries.forget(connection, caller.theme, number, session_id=caller.session_id, at=at)
    if gone is None:
        raise BadArgument(f"id is {number}; the memory of theme {caller.theme} has no such entry")
    answer = {"status": "forgotten", **_shown(runtime, [gone])[0]}
    if gone.home == runtime.home.id and gone.content in (runtime.home.entries(_target(gone)) or ()):
        answer["note"] = f"it still stands in {FILES[gone.target]}; remove it there with the memory tool"
    return answer


def _list(runtime: Runtime, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    most, budget_s = runtime.settings.recall_limit_max, runtime.settings.recall_budget_s
    target = given.choice(arguments, "target", TARGETS) or ""
    limit = given.whole(arguments, "limit", 1, most) or min(LIMIT_DEFAULT, most)
    before = given.whole(arguments, "before", 1, ID_MAX)
    runtime.writer.flush(budget_s / 2)
    with runtime.database.connection(budget_s, within_s=budget_s) as connection:
        profile = entries.profile(connection, caller.theme)
        found = entries.page(connection, caller.theme, limit, target=target, before=before)
    shown = _shown(runtime, found)
    rest = {"next": shown[-1]["id"]} if shown and (len(found) == limit or len(shown) < len(found)) else {}
    newest = max((newest for _, newest in profile.values()), default=None)
    return {
        "theme": caller.theme,
        "counts": {name: profile[name][0] if name in profile else 0 for name in TARGETS},
        "newest": newest and _utc(newest),
        "entries": shown,
        **rest,
    }


def _shown(runtime: Runtime, found: list[entries.Stored]) -> list[dict[str, Any]]:
    """Entries as quoted data within the bound of an answer; the last are left out when they do not fit."""
    hits = tuple(
        Hit(
            id=entry.id, theme=entry.theme, content=entry.content, at=entry.updated_at, score=0.0, target=entry.target,
            metadata=entry.metadata,
        )
        for entry in found
    )  # fmt: skip
    shown = as_json(Recall(hits), query="", scope="", chars_max=runtime.settings.recall_chars_max - FRAME_CHARS)["hits"]
    return [{name: value for name, value in hit.items() if name not in ("score", "why")} for hit in shown]


def _target(entry: entries.Stored) -> Target:
    return "user" if entry.target == "user" else "memory"


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
