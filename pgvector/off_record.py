"""Which sessions are off the record: nothing of them is stored until they are on it again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path

from .files import overwrite
from .records import make_private

SESSIONS_MAX = 1000
_OFF = re.compile(r"(?:go |we are |this is )?off (?:the )?record")
_ON = re.compile(r"(?:go |we are |this is )?(?:back )?on (?:the )?record")


def switch(message: object) -> bool | None:
    """True for a message that takes the session off the record, False for one that ends this, else None.

    Only a whole message counts: "off the record", "on the record" and close variants, in any case and punctuation.
    """
    if not isinstance(message, str) or len(message) > 60:
        return None
    words = " ".join(re.findall(r"[^\W_]+", message.casefold()))
    return True if _OFF.fullmatch(words) else False if _ON.fullmatch(words) else None


def on_record(turns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The (user, answer) pairs of a transcript that were said on the record, without the switches themselves."""
    switches = [(index, off) for index, (user, _) in enumerate(turns) if (off := switch(user)) is not None]
    # A transcript may have lost its beginning: one whose first switch is "on the record" was off it before.
    off = bool(switches) and not switches[0][1]
    kept = []
    for pair in turns:
        asked = switch(pair[0])
        off = off if asked is None else asked
        if asked is None and not off:
            kept.append(pair)
    return kept


class OffRecord:
    """The sessions of one home that are off the record. Safe for any thread; kept in the home for other processes.

    Sessions are known by hashes. Past the 1,000 that changed last, the oldest are forgotten.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / "off_record.json"
        self._lock = threading.Lock()
        self._stamp = (0, 0)
        self._sessions: dict[str, None] = {}

    def holds(self, session: str) -> bool:
        """Whether a session is off the record."""
        with self._lock:
            self._refresh()
            return _digest(session) in self._sessions

    def turn(self, session: str, *, off: bool) -> None:
        """Take a session off the record, or put it on again."""
        with self._lock:
            self._refresh()
            name = _digest(session)
            if off == (name in self._sessions):
                return
            self._sessions.pop(name, None)
            if off:
                self._sessions[name] = None
            self._sessions = dict.fromkeys(list(self._sessions)[-SESSIONS_MAX:])
            with contextlib.suppress(OSError):
                make_private(self._path.parent)
                overwrite(self._path, json.dumps(list(self._sessions)))
                self._stamp = self._seen()

    def _refresh(self) -> None:
        # In a home that cannot be read or written, what this process knows counts.
        with contextlib.suppress(OSError, ValueError, TypeError):
            stamp = self._seen()
            if stamp != self._stamp:
                self._sessions = dict.fromkeys(map(str, json.loads(self._path.read_text(encoding="utf-8"))))
                self._stamp = stamp

    def _seen(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_ino


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
