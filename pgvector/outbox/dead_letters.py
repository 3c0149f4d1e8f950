"""Dead letters of a home: events that cannot be stored, each in a file `aside/<id>.json` with the reason."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..errors import BadEvent
from ..files import make_private, overwrite
from ..model import Event
from .codec import decode
from .json_folder import JsonFolder

FILES_MAX, BYTES_MAX = 10_000, 256 << 20
# A killed process leaves a temporary file behind; a younger one may still be in use.
TEMPORARY_AGE_S_MAX = 3600.0
COUNT_INTERVAL_S = 1.0
UNREADABLE = "the file in which it was kept cannot be read"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter. `id` names its file.

    `event` is None when it is damaged; `raw` is the text of the event as it was kept. `at` is the time of the file,
    `size` its length in bytes.
    """

    id: str
    reason: str
    raw: str
    event: Event | None
    at: datetime
    size: int


class DeadLetters(JsonFolder[DeadLetter]):
    """The dead letters in the state folder of a home.

    At most `files_max` letters and `bytes_max` bytes are kept. The folder is made with the first letter.
    """

    noun, list_command = "dead letter", "spool list"

    def __init__(self, state: Path, *, files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX) -> None:
        super().__init__(state / "aside")
        self._files_max, self._bytes_max = files_max, bytes_max
        # As if it was full, so that the first letter has them counted.
        self._files, self._bytes, self._count_at = files_max, bytes_max, 0.0

    def keep(self, event_id: str, reason: str, raw: str, share: float = 1.0) -> bool:
        """Keep an event with the reason, in place of an earlier letter with the same id.

        Returns False when `share` of the bounds is used up, or the folder cannot be written.
        """
        text = json.dumps({"reason": reason, "event": raw})
        try:
            make_private(self.folder)
            # Counting takes longer than a hook may wait for each event.
            if not self._fits(len(text), share) and time.monotonic() >= self._count_at:
                self._count()
            if not self._fits(len(text), share):
                return False
            overwrite(self.path(event_id), text)
        except OSError:
            return False
        self._files, self._bytes = self._files + 1, self._bytes + len(text)
        return True

    def __iter__(self) -> Iterator[DeadLetter]:
        """All letters in the order of their ids, read one by one."""
        return (letter for event_id in self.ids() if (letter := self.read(event_id)) is not None)

    def read(self, name: str) -> DeadLetter | None:
        """The letter with exactly this id; None when there is none."""
        path = self.path(name)
        try:
            status = path.stat()
        except OSError:
            return None
        reason, raw = UNREADABLE, ""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            raw = path.read_text(encoding="utf-8", errors="replace")
            values = json.loads(raw)
            reason, raw = str(values["reason"]), str(values["event"])
        return DeadLetter(name, reason, raw, _event(raw), datetime.fromtimestamp(status.st_mtime, UTC), status.st_size)

    def delete(self, name: str) -> bool:
        """Delete a letter; False when it does not exist. Raises Unavailable."""
        deleted = super().delete(name)
        self._count_at = 0.0
        return deleted

    def _fits(self, size: int, share: float) -> bool:
        return self._files + 1 <= share * self._files_max and self._bytes + size <= share * self._bytes_max

    def _count(self) -> None:
        """Count the letters and their bytes. Old temporary files are removed."""
        files = size = 0
        with os.scandir(self.folder) as found:
            for file in found:
                with contextlib.suppress(FileNotFoundError):
                    status = file.stat()
                    if file.name.endswith(".json"):
                        files, size = files + 1, size + status.st_size
                    elif ".json." in file.name and time.time() - status.st_mtime > TEMPORARY_AGE_S_MAX:
                        os.unlink(file.path)
        self._files, self._bytes = files, size
        self._count_at = time.monotonic() + COUNT_INTERVAL_S


def _event(raw: str) -> Event | None:
    with contextlib.suppress(BadEvent):
        event = decode(raw.encode("utf-8", "surrogatepass"))
        if isinstance(event.theme, str) and isinstance(event.id, str):
            return event
    return None
