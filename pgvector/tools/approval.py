"""The gate of the tools that write: with the host's `memory.write_approval`, a person approves each write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Refused
from ..hosts import write_approval
from ..hosts.config import host_section
from ..model import Caller
from ..outbox.pending_writes import PendingWrites
from ..runtime import Runtime
from .arguments import Arguments

DENIED = "the user denied this write; nothing is changed"


def held_back(
    runtime: Runtime, tool: str, arguments: Arguments, caller: Caller, preview: Callable[[], str]
) -> dict[str, Any] | None:
    """The answer of a tool whose write waits now; None when it may be made.

    `preview()` is what it would do, empty for a call that writes nothing.

    Raises Refused when the user denies it or too many writes wait, SettingsError when config.yaml cannot be read, and
    Unavailable when the write cannot be kept.
    """
    from ..text.sanitize import visible  # which takes long to import: a host reads the schemas at its start

    configured = write_approval.is_on(host_section(runtime.home.path, "memory").get("write_approval"))
    if not configured and not write_approval.is_on_in_host():
        return None
    what = preview()
    if not what:
        return None
    # Hidden characters must not change what the person reads.
    gate = write_approval.ask(tool, visible(what))
    if gate == "denied":
        raise Refused(DENIED)
    if gate == "allowed":
        return None
    name = PendingWrites(runtime.home.state, runtime.settings).add(
        tool, arguments, theme=caller.theme, session_id=caller.session_id, marks=caller.marks, preview=what
    )
    days = runtime.settings.pending_days
    note = (
        "memory.write_approval is on: nothing is changed and nothing of this is recalled until a person approves it "
        f"with: hermes-pgvector pending approve {name}. It expires after {days} days."
    )
    return {"status": "waits for approval", "staged": True, "pending_id": name, "theme": caller.theme, "note": note}
