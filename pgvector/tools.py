"""The tools the model may call: their schemas, the parsing of their arguments, their JSON answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from . import moments
from .capture import clean
from .errors import BadArgument, PgvectorError
from .model import TARGETS, RecallRequest, Scope, Target
from .render import as_json
from .runtime import Runtime

LIMIT_DEFAULT = 10
CONTEXT_MAX = 3
ROLES = ("user", "assistant")

_QUERY = {"type": "string", "description": "What to look for, in plain words or as a question"}
_SCOPE = {
    "type": "string",
    "description": "current: this theme (usual); session: this conversation; all: every theme that may be read; "
    "or the name of a theme",
}
_LIMIT = {"type": "integer", "minimum": 1, "description": f"Most hits to return (default {LIMIT_DEFAULT})"}
_SINCE = {"type": "string", "description": "Nothing older: a date like 2026-11-21, or a time like 2026-11-21T09:30Z"}
_UNTIL = {"type": "string", "description": "Nothing newer: as since; a date counts to its end"}

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
                "since": _SINCE,
                "until": _UNTIL,
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
            "properties": {
                "query": _QUERY,
                "scope": _SCOPE,
                "since": _SINCE,
                "until": _UNTIL,
                "role": {
                    "type": "string",
                    "enum": list(ROLES),
                    "description": "Only what the user or only what the assistant said; leave out for both",
                },
                "context": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": CONTEXT_MAX,
                    "description": "Turns before and after each hit to bring with it (default 0)",
                },
                "limit": _LIMIT,
            },
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
            scope=_narrowed(runtime.scope(theme, scope_name, session_id), arguments),
            limit=_limit(arguments, runtime.settings.recall_limit_max),
            context=_whole(arguments, "context", 0, CONTEXT_MAX, 0),
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


def _narrowed(scope: Scope, arguments: Mapping[str, Any]) -> Scope:
    since, until = moments.since(_text(arguments, "since")), moments.until(_text(arguments, "until"))
    moments.check_order(since, until)
    role = _text(arguments, "role")
    if role and role not in ROLES:
        raise BadArgument(f"role is {role[:40]!r}; it must be one of {', '.join(ROLES)}")
    return replace(scope, since=since, until=until, role=role)


def _limit(arguments: Mapping[str, Any], most: int) -> int:
    return _whole(arguments, "limit", 1, most, min(LIMIT_DEFAULT, most))


def _whole(arguments: Mapping[str, Any], name: str, least: int, most: int, default: int) -> int:
    value = arguments.get(name)
    if value is None:
        return default
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = least - 1
    whole = not isinstance(value, bool) and (not isinstance(value, float) or value.is_integer())
    if not whole or not least <= number <= most:
        raise BadArgument(f"{name} is {_shown(value)}; it must be a whole number from {least} to {most}")
    return number


def _shown(value: Any) -> str:
    return repr(value)[:40] if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def _target(arguments: Mapping[str, Any]) -> Target | None:
    target = _text(arguments, "target")
    if not target:
        return None
    if target not in TARGETS:
        raise BadArgument(f"target is {target[:40]!r}; it must be one of {', '.join(TARGETS)}")
    return target
