"""Where a row comes from, as far as hosts and imports tell it, in a word. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Sources of texts by which somebody else may speak: results of tools, other agents, imported rows.
OUTSIDE = frozenset({"tools", "agent", "import"})


def source_of(role: str, metadata: Mapping[str, Any]) -> str:
    """The source of a turn with this role, or of an entry, whose role is empty.

    `user` for what a person said, `assistant` for an answer, `tools` for one that was made with results of tools which
    may hold anybody's text, `agent` for a task of a child agent and its result, `import`, `mcp` for an entry of an MCP
    client. Entries also come from the `memory tool`, a `file`, `remember`, `undo`, or the `database` (put in by hand).
    """
    if "delegated_to" in metadata:
        return "agent"
    origin = str(metadata.get("origin") or "")
    if not role and metadata.get("client"):
        return str(metadata["client"])
    if not role:
        return origin or ("memory tool" if metadata.keys() - {"released"} else "database")
    if origin == "import":
        return origin
    return "tools" if role == "assistant" and metadata.get("tools") else role


def is_outside(role: str, metadata: Mapping[str, Any]) -> bool:
    """Whether the text of a row may be by somebody who is neither the user nor the agent."""
    return source_of(role, metadata) in OUTSIDE


def described(source: str, role: str, metadata: Mapping[str, Any]) -> str:
    """How a row came here, for an operator: its `source`, and from whom, with the tools of its turn."""
    found = source_of(role, metadata)
    if found not in OUTSIDE or found == source:
        return source
    tools = ", ".join(map(str, metadata["tools"])) if found == "tools" and isinstance(metadata["tools"], list) else ""
    return f"{source}, from {found}{f' ({tools})' if tools else ''}"
