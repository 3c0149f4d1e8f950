"""Writes of agents that wait for a person's approval, each in a file `pending/<id>.json` of a home."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import Refused, Unavailable
from ..files import make_private, overwrite, sync_file
from ..settings import Settings
from .json_folder import JsonFolder

DAY_S = 86_400
ID_CHARS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWrite:
    """A call of a tool that writes. `preview` is what it would do, in words; `at` is when it was made.

    `marks` are the origin of the agent. A call from a file that cannot be read has no `tool`.
    """

    id: str
    at: datetime
    tool: str = ""
    arguments: Mapping[str, Any]
    theme: str = ""
    session_id: str = ""
    marks: Mapping[str, Any]
    preview: str = ""


class PendingWrites(JsonFolder[PendingWrite]):
    """The waiting writes in the state folder of a home.

    At most `pending_max` wait, each for `pending_days` days. Older ones are deleted by the next session of the home.
    """

    noun, list_command = "waiting write", "pending list"

    def __init__(self, state: Path, settings: Settings) -> None:
        super().__init__(state / "pending")
        self._writes_max, self._days = settings.pending_max, settings.pending_days

    def add(
        self, tool: str, arguments: Mapping[str, Any], *, theme: str, session_id: str, marks: Mapping[str, Any],
        preview: str,
    ) -> str:  # fmt: skip
        """Keep a call, safe from a power loss, and return its id. Raises Refused when too many wait, or Unavailable."""
        self.delete_expired()
        if len(self.ids()) >= self._writes_max:
            raise Refused(
                f"nothing is changed: {self._writes_max} writes wait for approval already, the most that pending_max "
                "allows; a person has to run: hermes-pgvector pending list"
            )
        name = uuid.uuid4().hex[:ID_CHARS]
        call = {"tool": tool, "arguments": arguments, "theme": theme, "session_id": session_id, "marks": marks}
        try:
            make_private(self.folder)
            overwrite(self.path(name), json.dumps({**call, "preview": preview}))
            sync_file(self.path(name))
            sync_file(self.folder)
        except OSError as error:
            raise Unavailable(f"nothing is changed: {self.folder} cannot be written: {error.strerror}") from None
        return name

    def ids(self) -> list[str]:
        """The ids of all writes that wait, sorted."""
        return [name for name in super().ids() if not self._is_expired(self.path(name))]

    def delete_expired(self) -> None:
        """Delete the writes that are too old, and what killed processes left of a file."""
        for path in self.folder.glob("*.json*"):
            with suppress(OSError):
                if self._is_expired(path):
                    path.unlink()

    def read(self, name: str) -> PendingWrite | None:
        """The write with exactly this id; None when there is none."""
        path = self.path(name)
        try:
            at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except OSError:
            return None
        try:
            call = json.loads(path.read_text(encoding="utf-8"))
            texts = {key: call[key] for key in ("tool", "theme", "session_id", "preview")}
            maps = {key: call[key] for key in ("arguments", "marks")}
            if all(isinstance(text, str) for text in texts.values()) and all(
                isinstance(m, dict) for m in maps.values()
            ):
                return PendingWrite(id=name, at=at, **texts, **maps)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        return PendingWrite(id=name, at=at, arguments={}, marks={}, preview="(the file cannot be read)")

    def all(self) -> list[PendingWrite]:
        """All waiting writes, the oldest first."""
        found = filter(None, map(self.read, self.ids()))
        return sorted(found, key=lambda write: (write.at, write.id))

    def _is_expired(self, path: Path) -> bool:
        try:
            return time.time() - path.stat().st_mtime > self._days * DAY_S
        except FileNotFoundError:
            return True


def document(write: PendingWrite) -> dict[str, Any]:
    """A write for a JSON document."""
    return {**asdict(write), "arguments": dict(write.arguments), "marks": dict(write.marks)}
