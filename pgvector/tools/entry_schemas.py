"""The schemas of the tools that keep, correct, remove and list entries."""

from __future__ import annotations

from typing import Any

from ..model import TARGETS
from ..settings import Settings
from . import arguments as given

LIMIT_DEFAULT = 20

_TARGET = {"type": "string", "enum": list(TARGETS)}
_THEME = {"type": "string", "description": "Another theme to keep it in, when it is for others too; only where listed"}
_TAGS = {"type": "array", "items": {"type": "string"}}
_EXPIRES = "A time span (14d, 12h, 3 weeks), a date, a time, or never"

SCHEMAS = (
    given.schema(
        "remember",
        "Keep a fact in the durable memory of this theme, for all its agents on all hosts, without putting it into "
        "your own notes. It stays until it expires or is forgotten.",
        {
            "content": {"type": "string", "description": "One fact, understandable on its own"},
            "target": {**_TARGET, "description": "memory: about the work (usual); user: about the user"},
            "supersedes": {
                "type": "integer",
                "description": "The id of an entry whose place it takes; its tags and expiry stay unless given",
            },
            "expires": {"type": "string", "description": f"When it is not true any more. {_EXPIRES} (default)"},
            "tags": {**_TAGS, "description": "A few words to find it by"},
            "metadata": {"type": "object", "description": "Anything to keep with it, as JSON"},
            "sync": {"type": "boolean", "description": "true: wait until it is stored, and return its id"},
        },
        required=["content"],
    ),
    given.schema(
        "update",
        "Change the text of one entry of this theme. It gets a new id. An operator can still bring the old text back.",
        {
            "id": {"type": "integer", "description": "Its id in list_memories or recall_memory"},
            "content": {"type": "string", "description": "Its whole new text"},
            "expires": {"type": "string", "description": f"{_EXPIRES}; leave out to keep what it has"},
            "tags": {**_TAGS, "description": "All its tags from now on; leave out to keep what it has"},
        },
        required=["id", "content"],
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
            "tags": {**_TAGS, "description": "Only those with one of these tags"},
            "limit": {"type": "integer", "minimum": 1, "description": f"Most entries (default {LIMIT_DEFAULT})"},
            "before": {"type": "integer", "description": "Only older ones than this id: the `next` of an answer"},
        },
    ),
)


def offered(settings: Settings) -> tuple[dict[str, Any], ...]:
    """The schemas for these settings: `remember` has the argument `theme` where `also_write` lists any theme."""
    if not settings.also_write:
        return SCHEMAS
    remembering, *others = SCHEMAS
    return (given.with_argument(remembering, "theme", _THEME), *others)
