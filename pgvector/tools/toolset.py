"""The call of a tool that the settings offer to an agent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ..errors import BadArgument, PgvectorError, Refused
from ..model import Caller
from ..outbox.pending_writes import PendingWrite
from ..runtime import Runtime
from . import approval, entries, facts, recall, relief
from . import arguments as given
from .schemas import schemas

_CALLS: dict[str, Callable[[Runtime, Mapping[str, Any], Caller], dict[str, Any]]] = {
    "recall_memory": partial(recall.recall, "entries"),
    "recall_conversation": partial(recall.recall, "turns"),
    "remember": entries.remember,
    "update": entries.update,
    "forget": entries.forget,
    "list_memories": entries.list_memories,
    "memory_write": facts.write,
    "memory_search": facts.search,
    "memory_tick": facts.tick,
    "memory_status": facts.status,
    "memory_reflect": facts.reflect,
    "memory_export": facts.export,
    "memory_purge": facts.purge,
    "memory_optimize": relief.memory_optimize,
}
# The tools that write: each with a check of its arguments that returns what the call would do.
_WRITES: dict[str, Callable[[Runtime, Mapping[str, Any], Caller], str]] = {
    "remember": entries.preview_of_remember,
    "update": entries.preview_of_update,
    "forget": entries.preview_of_forget,
    "memory_write": facts.preview_of_write,
    "memory_purge": facts.preview_of_purge,
    "memory_optimize": relief.preview_of_memory_optimize,
}


def call(runtime: Runtime, name: str, arguments: Mapping[str, Any], caller: Caller) -> str:
    """Run a tool that is offered and return its JSON answer; an error is an answer too and names the argument."""
    offered = schemas(runtime.settings)
    if not offered:
        return _json({"error": f"there is no tool {name[:60]!r}; recall_mode is context, so there are none"})
    try:
        return _json(answer(runtime, offered, name, arguments, caller))
    except PgvectorError as error:
        return _json({"error": str(error)})


def answer(
    runtime: Runtime, offered: Iterable[Mapping[str, Any]], name: str, arguments: Mapping[str, Any], caller: Caller
) -> dict[str, Any]:
    """Run one of the tools with the schemas `offered`. Raises PgvectorError, which names a wrong argument."""
    schema = next((schema for schema in offered if schema["name"] == name), None)
    if schema is None:
        known = ", ".join(schema["name"] for schema in offered)
        raise BadArgument(f"there is no tool {name[:60]!r}; use {known}")
    given.check(schema, arguments)
    runtime.load()
    if preview := _WRITES.get(name):
        held = approval.held_back(runtime, name, arguments, caller, partial(preview, runtime, arguments, caller))
        if held is not None:
            return held
    return _CALLS[name](runtime, arguments, caller)


def approve(runtime: Runtime, write: PendingWrite) -> dict[str, Any]:
    """Make a write that a person approved, as the tool would have made it, and return its answer.

    Raises Refused when the call cannot be made any more, or would do something else than its preview says.
    """
    check = _WRITES.get(write.tool)
    if check is None:
        raise Refused(f"write {write.id} cannot be made: its file cannot be read; reject it")
    caller = Caller(theme=write.theme, session_id=write.session_id, marks=write.marks, reads_files=True)
    if check(runtime, write.arguments, caller) != write.preview:
        raise Refused(f"write {write.id} would now do something else than was shown; reject it")
    return _CALLS[write.tool](runtime, write.arguments, caller)


def _json(answer: Mapping[str, Any]) -> str:
    return json.dumps(answer, ensure_ascii=False)
