"""The tools that the settings offer to an agent, and the call of one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..errors import PgvectorError
from ..model import Caller
from ..runtime import Runtime
from ..settings import Settings
from . import arguments as given
from . import entries, recall

_CALLS: dict[str, Callable[[Runtime, Mapping[str, Any], Caller], dict[str, Any]]] = {
    "recall_memory": partial(recall.recall, "entries"),
    "recall_conversation": partial(recall.recall, "turns"),
    "remember": entries.remember,
    "update": entries.update,
    "forget": entries.forget,
    "list_memories": entries.list_memories,
}


def schemas(settings: Settings) -> list[dict[str, Any]]:
    """The schemas of the tools that are offered."""
    if settings.recall_mode == "context":
        return []
    optional = entries.SCHEMAS if settings.tools == "all" else ()
    return [dict(schema) for schema in (*recall.SCHEMAS, *optional)]


def call(runtime: Runtime, name: str, arguments: Mapping[str, Any], caller: Caller) -> str:
    """Run a tool that is offered and return its JSON answer; an error is an answer too and names the argument."""
    offered = {schema["name"]: schema for schema in schemas(runtime.settings)}
    if name not in offered:
        known = f"use {', '.join(offered)}" if offered else "recall_mode is context, so there are none"
        return _json({"error": f"there is no tool {name[:60]!r}; {known}"})
    try:
        given.check(offered[name], arguments)
        return _json(_CALLS[name](runtime, arguments, caller))
    except PgvectorError as error:
        return _json({"error": str(error)})


def _json(answer: Mapping[str, Any]) -> str:
    return json.dumps(answer, ensure_ascii=False)
