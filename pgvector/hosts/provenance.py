"""Where a row comes from, as far as hosts and imports tell it, in a word. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import Outside

THIRD_PARTIES = "third parties"
# Sources of texts by which somebody else may speak: results of tools, other agents, imported rows.
OUTSIDE = frozenset({"tools", THIRD_PARTIES, "agent", "import"})
# Those of them that are not from the machine of the agent or from its operator.
REMOTE = frozenset({THIRD_PARTIES, "agent"})
# Tools of both hosts whose results are from the machine of the agent: its files and commands. Any other may bring a
# text from anywhere; `execute_code` can call those of the web.
LOCAL_TOOLS = frozenset({
    "terminal", "process", "process_manage", "read_terminal", "read_file", "search_files", "skill_view", "skill_manage",
})  # fmt: skip
# The tool that stands for the text of a file in a message of a person; no host has it.
ATTACHMENT = "attachment"


def source_of(role: str, metadata: Mapping[str, Any]) -> str:
    """The source of a turn with this role, or of an entry, whose role is empty.

    `user` for what a person said, `assistant` for an answer, `tools` for one that was made with files and commands of
    the agent's machine, `third parties` for an answer or an entry that was made with results of any other tools and for
    a message with the text of a file, `agent` for a task of a child agent and its result, `import`, `mcp` for an entry
    of an MCP client. Other entries come from the `memory tool`, a `file`, `remember`, `undo`, or the `database` (put in
    by hand).
    """
    if "delegated_to" in metadata:
        return "agent"
    origin = str(metadata.get("origin") or "")
    if not role and "saves" in metadata and isinstance(metadata.get("tools"), list):
        return THIRD_PARTIES
    if not role and metadata.get("client"):
        return str(metadata["client"])
    if not role:
        return origin or ("memory tool" if metadata.keys() - {"released"} else "database")
    if origin == "import":
        return origin
    tools = metadata.get("tools")
    if role == "user" and isinstance(tools, list) and ATTACHMENT in tools:
        return THIRD_PARTIES
    if role != "assistant" or not tools:
        return role
    return "tools" if isinstance(tools, list) and LOCAL_TOOLS.issuperset(map(str, tools)) else THIRD_PARTIES


def is_outside(role: str, metadata: Mapping[str, Any]) -> bool:
    """Whether the text of a row may be by somebody who is neither the user nor the agent."""
    return source_of(role, metadata) in OUTSIDE


def is_trusted(role: str, metadata: Mapping[str, Any], outside: Outside) -> bool:
    """Whether `outside` allows rows of this source: `all`, `local` (no third parties and child agents), or `none`.

    The task of a child agent is in the words of its parent.
    """
    source = source_of(role, metadata)
    if outside == "local":
        return source not in REMOTE or (source == "agent" and role == "user")
    return outside == "all" or source not in OUTSIDE


def described(source: str, role: str, metadata: Mapping[str, Any]) -> str:
    """How a row came here, for an operator: its `source`, and from whom, with the tools of its turn."""
    found = source_of(role, metadata)
    if found not in OUTSIDE or found == source:
        return source
    named = metadata.get("tools") if found in ("tools", THIRD_PARTIES) else None
    tools = ", ".join(map(str, named)) if isinstance(named, list) else ""
    return f"{source}, from {found}{f' ({tools})' if tools else ''}"
