"""The tools the model may call: their schemas, the parsing of their arguments, their JSON answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .capture import clean
from .errors import BadArgument, PgvectorError
from .model import TARGETS, RecallRequest, Target
from .render import as_json
from .runtime import Runtime

LIMIT_DEFAULT = 10

_QUERY = {"type": "string", "description": "What to look for, in plain words or as a question"}
_SCOPE = {
    "type": "string",
    "description": "current: this theme (usual); session: this conversation; all: every theme that may be read; "
    "or the name of a theme",
}
_LIMIT = {"type": "integer", "minimum": 1, "description": f"Most hits to return (default {LIMIT_DEFAULT})"}

SCHEMAS: tuple[dict[str, Any], ...] = (
    {
        "name": "recall_memory",
        "description": "Search the durable memory that all agents of this theme share: facts, preferences and notes "
        "that were saved with the memory tool, here or on another host.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": _QUERY,
                "scope": _SCOPE,
                "target": {
                    "type": "string",
                    "enum": list(TARGETS),
                    "description": "memory: notes about the work; user: facts about the user; leave out for both",
                },
                "limit": _LIMIT,
            },
            "required": ["query"],
        },
    },
    {
        "name": "recall_conversation",
        "description": "Search past conversation turns of this theme, of earlier sessions and other hosts too: what "
        "was asked, answered, decided or tried.",
        "parameters": {
            "type": "object",
            "properties": {"query": _QUERY, "scope": _SCOPE, "limit": _LIMIT},
            "required": ["query"],
        },
    },
)


def call(runtime: Runtime, name: str, arguments: Mapping[str, Any], *, theme: str, session_id: str) -> str:
    """Run a tool for a theme and return its JSON answer; an error is an answer too and names the argument."""
    try:
        schema = _schema(name)
        if not isinstance(arguments, Mapping):
            raise BadArgument(f"the arguments are a {type(arguments).__name__}; they must be an object")
        _check_names(schema, arguments)
        query = _query(arguments)
        scope_name = _text(arguments, "scope") or runtime.settings.scope_default
        request = RecallRequest(
            query=query,
            scope=runtime.scope(theme, scope_name, session_id),
            limit=_limit(arguments, runtime.settings.recall_limit_max),
            budget_s=runtime.settings.recall_budget_s,
            target=_target(arguments),
        )
        recall = runtime.recall("entries" if name == "recall_memory" else "turns", request)
    except PgvectorError as error:
        return json.dumps({"error": str(error)}, ensure_ascii=False)
    answer = as_json(recall, query=query, scope=scope_name, chars_max=runtime.settings.recall_chars_max)
    return json.dumps(answer, ensure_ascii=False)


def _schema(name: str) -> dict[str, Any]:
    for schema in SCHEMAS:
        if schema["name"] == name:
            return schema
    known = ", ".join(schema["name"] for schema in SCHEMAS)
    raise BadArgument(f"there is no tool {name[:60]!r}; use {known}")


def _check_names(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    known = schema["parameters"]["properties"]
    for name in arguments:
        if name not in known:
            raise BadArgument(f"unknown argument {str(name)[:60]!r}; {schema['name']} takes {', '.join(known)}")


def _query(arguments: Mapping[str, Any]) -> str:
    query = clean(_text(arguments, "query")).strip()
    if not query:
        raise BadArgument("query is missing or empty; say what to look for")
    return query


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadArgument(f"{name} is a {type(value).__name__}; it must be a string")
    return value


def _limit(arguments: Mapping[str, Any], most: int) -> int:
    value = arguments.get("limit")
    if value is None:
        return min(LIMIT_DEFAULT, most)
    try:
        limit = int(value)
    except (TypeError, ValueError, OverflowError):
        limit = 0
    whole = not isinstance(value, bool) and (not isinstance(value, float) or value.is_integer())
    if not whole or not 1 <= limit <= most:
        raise BadArgument(f"limit is {_shown(value)}; it must be a whole number from 1 to {most}")
    return limit


def _shown(value: Any) -> str:
    return repr(value)[:40] if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def _target(arguments: Mapping[str, Any]) -> Target | None:
    target = _text(arguments, "target")
    if not target:
        return None
    if target not in TARGETS:
        raise BadArgument(f"target is {target[:40]!r}; it must be one of {', '.join(TARGETS)}")
    return target
