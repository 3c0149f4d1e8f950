"""What is off the record: sessions, of which nothing is stored until they are on it again, and entries they write."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..files import make_private
from ..model import Target

log = logging.getLogger("hermes.pgvector")

SESSIONS_MAX = 1000
ENTRIES_MAX = 1000
_OFF = re.compile(r"(?:go |we are |this is )?off (?:the )?record")
_ON = re.compile(r"(?:go |we are |this is )?(?:back )?on (?:the )?record")
# In rooms hosts put the name of who speaks before a message.
_SPEAKER = re.compile(r"\s*\[[^\[\]\n]{1,100}\]\s*")


def switch(message: object) -> bool | None:
    """True for a message that takes the session off the record, False for one that ends this, else None.

    Only a whole message counts: "off the record", "on the record" and close variants, in any case and punctuation.
    """
    if not isinstance(message, str):
        return None
    speaker = _SPEAKER.match(message)
    said = message[speaker.end() :] if speaker else message
    if len(said) > 60:
        return None
    words = " ".join(re.findall(r"[^\W_]+", said.casefold()))
    return True if _OFF.fullmatch(words) else False if _ON.fullmatch(words) else None


def on_record(turns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The (user, answer) pairs of a transcript that were said on the record, without the switches themselves."""
    kept: list[tuple[str, str]] = []
    stretch: list[tuple[str, str]] = []
    # None: it may have been either way, because the message that tells is gone with what was before.
    off: bool | None = None
    for pair in turns:
        asked = switch(pair[0])
        if asked is not None:
            # What "on the record" ends was off it, as far as anybody can tell.
            if (asked and not off) or off is False:
                kept += stretch
            stretch, off = [], asked
        elif off is False and not pair[0]:
            # In place of a question without words there may be a summary of what was compressed.
            kept += stretch
            stretch, off = [pair], None
        else:
            stretch.append(pair)
    return kept if off else kept + stretch


class OffRecord:
    """The sessions of one home that are off the record. Safe for any thread; kept in the home for other processes.

    Each is an empty file named by a hash: no process writes over what another one said, and none waits for another.
    Past the 1,000 that changed last, the oldest are forgotten.
    """

    def __init__(self, state: Path) -> None:
        self._folder = state / "off_record"
        self._lock = threading.Lock()
        # In a home that cannot be read or written, what this process knows counts.
        self._sessions: dict[str, None] = {}
        # What the other processes are still to be told: whether a session is off the record.
        self._unwritten: dict[str, bool] = {}

    def holds(self, session: str) -> bool:
        """Whether a session is off the record."""
        with self._lock:
            return self._look(_digest(session))

    def turn(self, session: str, *, off: bool) -> None:
        """Take a session off the record, or put it on again."""
        name = _digest(session)
        with self._lock:
            if off == self._look(name):
                return
            self._note(name, off=off)
            self._unwritten[name] = off
            _shorten(self._unwritten)
            self._write()
            if self._unwritten:
                log.warning(
                    "%s cannot be written: until it can be, no other process learns that a session went %s the record",
                    self._folder,
                    "off" if off else "on",
                )

    def _look(self, name: str) -> bool:
        self._write()
        if name not in self._unwritten:
            with contextlib.suppress(OSError):
                # Without the folder, that a file is missing says nothing.
                self._folder.stat()
                self._note(name, off=(self._folder / name).exists())
        return name in self._sessions

    def _note(self, name: str, *, off: bool) -> None:
        self._sessions.pop(name, None)
        if off:
            self._sessions[name] = None
            _shorten(self._sessions)

    def _write(self) -> None:
        """Tell the other processes; what cannot be written is tried again at the next look."""
        if not self._unwritten:
            return
        with contextlib.suppress(OSError):
            make_private(self._folder)
            for name, off in tuple(self._unwritten.items()):
                if off:
                    _mark(self._folder / name)
                else:
                    (self._folder / name).unlink(missing_ok=True)
                del self._unwritten[name]
            _keep_newest(self._folder, SESSIONS_MAX)


def _shorten(names: dict[str, Any]) -> None:
    if len(names) > SESSIONS_MAX:
        del names[next(iter(names))]


class OffRecordEntries:
    """Entries that were written into the memory files off the record, as long as they stand there.

    The snapshot holds them too, but later than they are written, and it may be lost. Safe for any thread; kept in the
    home for other processes. Entries are known by hashes, and each is an empty file of its own: to keep one takes no
    lock that somebody could hold. Past the 1,000 that were kept last, the oldest are forgotten.
    """

    def __init__(self, state: Path) -> None:
        self._folder = state / "unrecorded"
        # In a home that cannot be written, what this process knows counts.
        self._unwritten: deque[str] = deque(maxlen=ENTRIES_MAX)

    def keep(self, target: Target, entries: Iterable[str]) -> None:
        """Keep these entries of a file."""
        names = frozenset(_name(target, entry) for entry in entries)
        try:
            make_private(self._folder)
            for name in names:
                _mark(self._folder / name)
        except OSError as error:
            self._unwritten.extend(names)
            log.warning(
                "what was saved off the record is known to this process alone (%s), the next one may store it: make %s "
                "writable",
                error.strerror,
                self._folder,
            )
        with contextlib.suppress(OSError):
            _keep_newest(self._folder, ENTRIES_MAX)

    def names(self, target: Target) -> frozenset[str]:
        """The names of what is kept of a file. Raises OSError."""
        names = list(self._unwritten)
        with contextlib.suppress(FileNotFoundError):
            names += os.listdir(self._folder)
        return frozenset(name for name in names if name.startswith(f"{target}-"))

    def among(self, target: Target, entries: Iterable[str]) -> tuple[str, ...]:
        """Those of the entries of a file that are kept. Raises OSError."""
        names = self.names(target)
        return tuple(entry for entry in entries if _name(target, entry) in names)

    def forget(self, target: Target, entries: Iterable[str]) -> None:
        """Keep these entries no longer: they are said on the record."""
        with contextlib.suppress(OSError):
            self._drop(_name(target, entry) for entry in entries)

    def forget_but(self, names: Iterable[str], target: Target, entries: Iterable[str]) -> None:
        """Keep no longer those of these names that are none of the entries of the file. Raises OSError."""
        standing = frozenset(_name(target, entry) for entry in entries)
        self._drop(name for name in names if name not in standing)

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(ValueError):
                self._unwritten.remove(name)
            (self._folder / name).unlink(missing_ok=True)


def _mark(path: Path) -> None:
    path.touch(0o600)
    # The times that the kernel gives by itself are too coarse to tell which is the newest.
    at = time.time_ns()
    os.utime(path, ns=(at, at))


def _keep_newest(folder: Path, most: int) -> None:
    marks = tuple(folder.iterdir())
    if len(marks) > most:
        for mark in sorted(marks, key=lambda mark: mark.stat().st_mtime_ns)[:-most]:
            mark.unlink(missing_ok=True)


def _name(target: Target, entry: str) -> str:
    return f"{target}-{_digest(entry)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
