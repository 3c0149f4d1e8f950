"""Writes of agents that wait for a person's approval, each in a file `pending/<id>.json` of a home."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import BadArgument, Refused, Unavailable
from ..files import locked_folder, make_private, overwrite, sync_file
from ..settings import Settings

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


class PendingWrites:
    """The waiting writes in the state folder of a home. Safe for several threads and processes.

    At most `writes_max` wait, each for `days` days. Those that are older are deleted by the next session of the home.
    """

    def __init__(self, state: Path, *, writes_max: int, days: int) -> None:
        self.folder = state / "pending"
        self._writes_max, self._days = writes_max, days

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
            overwrite(self._path(name), json.dumps({**call, "preview": preview}))
            sync_file(self._path(name))
            sync_file(self.folder)
        except OSError as error:
            raise Unavailable(f"nothing is changed: {self.folder} cannot be written: {error.strerror}") from None
        return name

    def ids(self) -> list[str]:
        """The ids of all writes that wait, sorted."""
        return sorted(path.stem for path in self.folder.glob("*.json") if not self._is_expired(path))

    def delete_expired(self) -> None:
        """Delete the writes that are too old, and what killed processes left of a file."""
        for path in self.folder.glob("*.json*"):
            with contextlib.suppress(OSError):
                if self._is_expired(path):
                    path.unlink()

    def all(self) -> list[PendingWrite]:
        """All waiting writes, the oldest first."""
        found = filter(None, map(self._read, self.ids()))
        return sorted(found, key=lambda write: (write.at, write.id))

    def find(self, prefix: str) -> PendingWrite:
        """The write with this id, or the only one whose id begins so. Raises BadArgument."""
        matching = [known for known in self.ids() if prefix and known.startswith(prefix)]
        if len(matching) > 1:
            raise BadArgument(f"{len(matching)} waiting writes begin with {prefix!r}; give more of the id")
        found = self._read(matching[0]) if matching else None
        if found is None:
            raise BadArgument(f"no write {prefix!r} waits for approval; see: hermes-pgvector pending list")
        return found

    def remove(self, write: PendingWrite) -> None:
        """Delete a write. Raises Unavailable."""
        try:
            self._path(write.id).unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"{self._path(write.id)} cannot be deleted: {error.strerror}") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands out; agents go on adding writes. Raises Unavailable while another command holds it."""
        with locked_folder(self.folder):
            yield

    def _is_expired(self, path: Path) -> bool:
        try:
            return time.time() - path.stat().st_mtime > self._days * DAY_S
        except FileNotFoundError:
            return True

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _read(self, name: str) -> PendingWrite | None:
        path = self._path(name)
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


def pending_writes(state: Path, settings: Settings) -> PendingWrites:
    """The waiting writes in the state folder of a home."""
    return PendingWrites(state, writes_max=settings.pending_max, days=settings.pending_days)


def document(write: PendingWrite) -> dict[str, Any]:
    """A write for a JSON document."""
    return {**asdict(write), "arguments": dict(write.arguments), "marks": dict(write.marks)}
