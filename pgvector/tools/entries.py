"""The tools that keep, remove and list entries: remember, forget and list_memories.

A host reads the schemas at its start, so the functions import what takes long to import.
"""

from __future__ import annotations

from typing import Any

from ..errors import BadArgument, DatabaseUnavailable, Refused
from ..model import TARGETS, Add, Caller, Target, now
from ..runtime import Runtime
from ..text.cleaning import clean
from . import arguments as given
from .arguments import Arguments

LIMIT_DEFAULT = 20
METADATA_CHARS_MAX = 4000
# Metadata of the origin of an entry, which a model must not set.
RESERVED = frozenset({"origin", "session_id", "context", "history_id"})
ID_MAX = (1 << 63) - 1

_TARGET = {"type": "string", "enum": list(TARGETS)}

SCHEMAS = (
    given.schema(
        "remember",
        "Keep a fact in the durable memory of this theme, for all its agents on all hosts, without putting it into "
        "your own notes. It stays until it is forgotten.",
        {
            "content": {"type": "string", "description": "One fact, understandable on its own"},
            "target": {**_TARGET, "description": "memory: about the work (usual); user: about the user"},
            "metadata": {"type": "object", "description": "Anything to keep with it, as JSON"},
            "sync": {"type": "boolean", "description": "true: wait until it is stored, and return its id"},
        },
        required=["content"],
    ),
    given.schema(
        "forget",
        "Take one entry out of the memory of this theme. An operator can still bring it back.",
        {"id": {"type": "integer", "description": "Its id in list_memories or recall_memory"}},
        required=["id"],
    ),
    given.schema(
        "list_memories",
        "What the memory of this theme holds: how many entries, and the newest of them.",
        {
            "target": {**_TARGET, "description": "memory, user; leave out for both"},
            "limit": {"type": "integer", "minimum": 1, "description": f"Most entries (default {LIMIT_DEFAULT})"},
            "before": {"type": "integer", "description": "Only older ones than this id: the `next` of an answer"},
        },
    ),
)


def remember(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Accept an entry of the caller's theme. Raises BadArgument, Refused off the record, or DatabaseUnavailable."""
    from . import answers

    if caller.off_record:
        raise Refused("nothing is stored, because this session is off the record")
    chars_max = runtime.settings.content_chars_max
    content = clean(given.text(arguments, "content")).strip()
    if not content:
        raise BadArgument("content is missing or empty; say what to remember")
    if len(content) > chars_max:
        raise BadArgument(f"content has {len(content)} characters; it may have {chars_max}")
    metadata = given.mapping(arguments, "metadata", METADATA_CHARS_MAX)
    if claimed := RESERVED & metadata.keys():
        raise BadArgument(f"metadata may not hold {', '.join(sorted(claimed))}; choose other names")
    target = given.choice(arguments, "target", TARGETS) or "memory"
    wait = given.switch(arguments, "sync")
    origin = {"origin": "remember", "session_id": caller.session_id, **caller.marks}
    event = Add(
        theme=caller.theme,
        session_id=caller.session_id,
        target=target,
        content=content,
        metadata={**metadata, **origin},
    )
    if not runtime.accept(event):
        raise DatabaseUnavailable("nothing is stored: the spool is full or cannot be written")
    return answers.of_accepted(event) | (_when_stored(runtime, event) if wait else {})


def _when_stored(runtime: Runtime, event: Add) -> dict[str, Any]:
    """The part of the answer about the stored row; waits for it at most as long as a recall may take."""
    from ..store.entries import entry_with
    from . import answers

    budget_s = runtime.settings.recall_budget_s
    if runtime.writer.flush(budget_s):
        with runtime.database.connection(budget_s, within_s=budget_s) as connection:
            found = entry_with(connection, event.theme, event.target, event.content)
        if found is not None:
            return answers.of_stored(found, event)
    return answers.of_unstored(budget_s)


def forget(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Remove an entry of the caller's theme; the history keeps it. Raises BadArgument, or Unavailable."""
    from ..mirror.home import FILES
    from ..store.entries import delete
    from . import answers

    number = given.whole(arguments, "id", 1, ID_MAX)
    if number is None:
        raise BadArgument("id is missing; list_memories and recall_memory show it")
    at, budget_s = now(), runtime.settings.recall_budget_s
    with runtime.database.transaction(budget_s, budget_s, within_s=budget_s) as connection:
        removed = delete(connection, caller.theme, number, session_id=caller.session_id, at=at)
    if removed is None:
        raise BadArgument(f"id is {number}; the memory of theme {caller.theme} has no such entry")
    target: Target = "user" if removed.target == "user" else "memory"
    held = removed.home == runtime.home.id and removed.content in (runtime.home.entries(target) or ())
    return answers.of_forgotten(removed, runtime.settings.recall_chars_max, file=FILES[target] if held else "")


def list_memories(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Count the entries of the caller's theme and list the newest. Raises BadArgument, or Unavailable."""
    from ..store.entries import count_by_target, newest
    from . import answers

    limit_max, budget_s = runtime.settings.recall_limit_max, runtime.settings.recall_budget_s
    target = given.choice(arguments, "target", TARGETS) or ""
    limit = given.whole(arguments, "limit", 1, limit_max) or min(LIMIT_DEFAULT, limit_max)
    before = given.whole(arguments, "before", 1, ID_MAX)
    runtime.writer.flush(budget_s / 2)
    with runtime.database.connection(budget_s, within_s=budget_s) as connection:
        counts = count_by_target(connection, caller.theme)
        found = newest(connection, caller.theme, limit, target=target, before=before)
    return answers.of_list(caller.theme, counts, found, limit, runtime.settings.recall_chars_max)
