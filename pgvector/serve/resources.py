"""What MCP clients can read by a URI: an entry of the connection's theme, and its hot facts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BadArgument
from ..model import Caller
from ..runtime import Runtime
from ..tools import toolset
from ..tools.entries import ID_MAX
from ..tools.storage import read

HOT_FACTS = "memory://facts/hot"
_ENTRY = re.compile("memory://entry/([1-9][0-9]{0,18})")
# The tool whose answer has the block of hot facts.
_STATUS = "memory_status"

TEMPLATES = [
    {
        "uriTemplate": "memory://entry/{id}",
        "name": "entry",
        "description": "An entry of this theme, by the id that the tools show",
        "mimeType": "application/json",
    }
]


def listed(schemas: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The resources with a fixed URI, where tools with these schemas are offered."""
    if not any(schema["name"] == _STATUS for schema in schemas):
        return []
    text = "The facts that hold now for the open work of this theme, in their notation"
    return [{"uri": HOT_FACTS, "name": "hot facts", "description": text, "mimeType": "text/plain"}]


def content(runtime: Runtime, schemas: Sequence[Mapping[str, Any]], uri: str, caller: Caller) -> dict[str, Any]:
    """The content of a resource. Raises BadArgument for an unknown one, and what the tools raise."""
    if uri == HOT_FACTS and listed(schemas):
        block = toolset.answer(runtime, schemas, _STATUS, {}, caller)["block"]
        return {"uri": uri, "mimeType": "text/plain", "text": block}
    found = _ENTRY.fullmatch(uri)
    if found is None or int(found[1]) > ID_MAX:
        raise BadArgument(f"there is no resource {uri[:80]!r}; use memory://entry/ID with the id of an entry")
    entry = _entry(runtime, caller, int(found[1]))
    return {"uri": uri, "mimeType": "application/json", "text": json.dumps(entry, ensure_ascii=False)}


def _entry(runtime: Runtime, caller: Caller, number: int) -> dict[str, Any]:
    """An entry as `list_memories` shows it; where it was replaced, the one in its place."""
    from ..store.entries import with_id
    from ..tools import answers

    runtime.load()
    settings = runtime.settings
    found = read(
        runtime, caller.theme, lambda reading, theme: with_id(reading, theme, number), settings.recall_budget_s
    )
    if found is None:
        raise BadArgument(f"the memory of theme {caller.theme} has no entry {number}")
    return answers.of_entry(found, settings.recall_chars_max)
