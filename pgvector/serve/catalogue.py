"""The tools as MCP clients see them: with hints about what they change, and the form of their answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Hints(NamedTuple):
    """What a tool changes. `repeatable`: a second equal call changes nothing more."""

    reads: bool = False
    destroys: bool = True
    repeatable: bool = False


_READS = Hints(reads=True, destroys=False, repeatable=True)
_ADDS = Hints(destroys=False, repeatable=True)
_REMOVES = Hints(repeatable=True)

# A tool that is not listed is taken for one that destroys.
HINTS = {
    "recall_memory": _READS, "recall_conversation": _READS, "list_memories": _READS,
    "remember": _ADDS, "update": _REMOVES, "forget": _REMOVES,
    "memory_search": _READS, "memory_status": _READS, "memory_reflect": _READS, "memory_export": _READS,
    "memory_write": _ADDS, "memory_tick": _ADDS, "memory_purge": _REMOVES, "memory_optimize": _REMOVES,
}  # fmt: skip


def _object(required: Sequence[str], properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


_TEXT, _NUMBER, _TEXTS = {"type": "string"}, {"type": "integer"}, {"type": "array", "items": {"type": "string"}}
_ENTRY = _object(["id", "theme", "content", "time"], {
    "id": _NUMBER, "theme": _TEXT, "content": _TEXT, "time": _TEXT, "target": _TEXT, "source": _TEXT, "role": _TEXT,
    "session_id": _TEXT, "tags": _TEXTS, "expires": _TEXT, "cut": {"type": "boolean"},
    "score": {"type": "number"}, "said": _NUMBER,
})  # fmt: skip
_FOUND = _object(["hits", "count", "degraded"], {
    "hits": {"type": "array", "items": _ENTRY}, "count": _NUMBER, "scope": _TEXT, "query": _TEXT,
    "left_out": _NUMBER, "degraded": {**_TEXTS, "description": "Why the answer may be worse than usual"},
})  # fmt: skip
_WRITTEN = _object(["status", "theme"], {
    "status": {**_TEXT, "description": "stored, accepted (it is stored soon), unchanged, or waits for approval"},
    "theme": _TEXT, "id": _NUMBER, "time": _TEXT, "target": _TEXT, "replaces": _NUMBER, "tags": _TEXTS,
    "expires": _TEXT, "note": _TEXT, "degraded": _TEXTS,
})  # fmt: skip
_LISTED = _object(["theme", "counts", "entries"], {
    "theme": _TEXT, "counts": {"type": "object", "additionalProperties": _NUMBER},
    "newest": {"type": ["string", "null"]}, "entries": {"type": "array", "items": _ENTRY}, "next": _NUMBER,
})  # fmt: skip
_FACT = _object(["id", "fact", "status", "time"], {
    "id": _NUMBER, "fact": {**_TEXT, "description": "KIND[target]: text"}, "scope": _TEXT, "status": _TEXT,
    "theme": _TEXT, "time": _TEXT, "score": {"type": "number"}, "similarity": {"type": ["number", "null"]},
})  # fmt: skip
_FACTS = {"type": "array", "items": _FACT}
_GAUGE: dict[str, Any] = {
    "gauge": {"type": "object", "properties": {"percent": _NUMBER, "chars": _NUMBER, "chars_max": _NUMBER}},
    "pressure": {**_TEXT, "description": "What makes room for facts, where the memory is that full"},
}
_FACT_WRITTEN = _object(["status", "theme"], {
    "status": {**_TEXT, "description": "stored, unchanged, waits for approval, or accepted, pending"},
    "theme": _TEXT, "id": _NUMBER, "fact": _TEXT, "scope": _TEXT, "superseded": _FACTS, "note": _TEXT, **_GAUGE,
})  # fmt: skip
_FACTS_FOUND = _object(["facts", "count", "degraded"], {
    "facts": _FACTS, "count": _NUMBER, "left_out": _NUMBER, "query": _TEXT, "scope": _TEXT, "degraded": _TEXTS
})  # fmt: skip
_FACT_STATUS = _object(["block", "gauge"], {
    "block": {**_TEXT, "description": "What to put into the context"}, "theme": _TEXT, "hot_facts": _NUMBER,
    "open_scopes": _TEXTS, **_GAUGE,
})  # fmt: skip
_FACTS_EXPORTED = _object(["facts", "count"], {
    "theme": _TEXT, "facts": {**_TEXT, "description": "One a line"}, "count": _NUMBER, "note": _TEXT,
})  # fmt: skip
_REFLECTED = _object(["topic", "count", "degraded"], {
    "topic": _TEXT, "count": _NUMBER, "constraints": _FACTS, "decisions": _FACTS, "values": _FACTS,
    "open_questions": _FACTS, "done": _FACTS, "obsolete": _FACTS, "superseded": _FACTS, "left_out": _NUMBER,
    "degraded": _TEXTS,
})  # fmt: skip
_TICKED = _object(["turn", "closing", "status"], {
    "turn": _NUMBER, "closing": {"type": "boolean", "description": "Whether the message says that work is done"},
    "status": _TEXT, "closed": _TEXTS, "open_scopes": _TEXTS, "note": _TEXT, **_GAUGE,
})  # fmt: skip
_PURGED = _object(["theme", "status"], {
    "theme": _TEXT, "status": _TEXT, "purged": {"type": ["integer", "null"]}, "note": _TEXT, **_GAUGE,
})  # fmt: skip
_OPTIMIZED = _object([], {
    "dry_run": {"type": "boolean", "description": "Whether nothing is changed"},
    "files": {"type": "array", "items": {"type": "object", "description": "The plan for a file, or what was done"}},
    "proposals": _TEXT, "status": _TEXT, "note": _TEXT,
})  # fmt: skip
_ANSWERS = {
    "recall_memory": _FOUND, "recall_conversation": _FOUND, "list_memories": _LISTED,
    "remember": _WRITTEN, "update": _WRITTEN, "forget": _WRITTEN,
    "memory_write": _FACT_WRITTEN, "memory_search": _FACTS_FOUND, "memory_status": _FACT_STATUS,
    "memory_export": _FACTS_EXPORTED, "memory_reflect": _REFLECTED, "memory_tick": _TICKED, "memory_purge": _PURGED,
    "memory_optimize": _OPTIMIZED,
}  # fmt: skip


def described(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of the agent in the form of MCP."""
    name, hints = schema["name"], HINTS.get(schema["name"], Hints())
    return {
        "name": name,
        "description": schema["description"],
        # `given.check` refuses other arguments, and names them.
        "inputSchema": schema["parameters"],
        "outputSchema": _ANSWERS.get(name, {"type": "object"}),
        "annotations": {
            "readOnlyHint": hints.reads,
            "destructiveHint": hints.destroys,
            "idempotentHint": hints.repeatable,
            "openWorldHint": False,
        },
    }
