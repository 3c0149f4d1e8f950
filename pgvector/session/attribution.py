"""Which entries an agent saved after it had read third parties, as events that say so."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import BadArgument
from ..hosts.tool_calls import Saving
from ..model import Add, Attributed, Remove, Replace
from . import off_record
from .state import Save

SAVE_ID_CHARS = 12


def save_id() -> str:
    """A new id of a save, which the metadata of its entry have: no id of a call is unique."""
    return uuid.uuid4().hex[:SAVE_ID_CHARS]


def events(
    saved: Iterable[Saving], saves: Sequence[Save], *, theme: str, home: str, session_id: str
) -> list[Attributed]:
    """One event for each theme in which calls of a session of `theme` have saved entries, and for each set of tools.

    `saves` are those of the host's tool. Some servers of models repeat the ids of calls in each turn.
    """
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for saving in saved:
        if not off_record.unrecorded(saving.question):
            ids = [saving.save_id] if saving.save_id else _matching(saving, saves)
            found.setdefault((saving.theme or theme, saving.tools), []).extend(ids)
    return [
        Attributed(theme=named, home=home, session_id=session_id, saves=tuple(ids), metadata={"tools": list(tools)})
        for (named, tools), ids in found.items()
        if ids
    ]


def changed(
    action: str, target: str, content: str, metadata: Mapping[str, Any], origin: Mapping[str, Any]
) -> Add | Replace | Remove:
    """The event of a change of the built-in memory. Raises BadArgument for an unknown action."""
    kept = {name: value for name, value in metadata.items() if name not in ("previous_content", "old_text")}
    common: dict[str, Any] = {**origin, "target": target, "metadata": kept}
    old: dict[str, Any] = {
        "previous": str(metadata.get("previous_content") or ""),
        "old_text": str(metadata.get("old_text") or ""),
    }
    match action:
        case "add":
            return Add(content=content, **common)
        case "replace":
            return Replace(content=content, **old, **common)
        case "remove":
            return Remove(**old, **common)
    raise BadArgument(f"memory action {action[:20]!r} is unknown; known are add, replace, remove")


def _matching(saving: Saving, saves: Sequence[Save]) -> list[str]:
    """The saves of a call of the host's tool. Hosts open some turns with another text than their transcript has."""
    called = [save for save in saves if save.call_id == saving.call_id]
    known = any(save.question == saving.question for save in saves)
    return [save.save_id for save in called if save.question == saving.question or not known]
