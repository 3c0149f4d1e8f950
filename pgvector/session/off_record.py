"""Sessions off the record: the messages that switch it, and which sessions of a home are off."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import Marks, make_private, mark_name

log = logging.getLogger("hermes.pgvector")

SESSIONS_MAX = 1000
# What the agent is told of a switch.
SWITCHED_OFF = "Nothing of this session is stored from now on, until the user says: on the record."
SWITCHED_ON = "What is said in this session is stored again."
STAYS_OFF = "Nothing of this session is stored: the operator has set off_record."
_OFF = re.compile(r"(?:go |we are |this is )?off (?:the )?record")
_ON = re.compile(r"(?:go |we are |this is )?(?:back )?on (?:the )?record")
# In a chat room, hosts put the name of the speaker before a message.
_SPEAKER = re.compile(r"\s*\[[^\[\]\n]{1,100}\]\s*")


def switch(message: object) -> bool | None:
    """True for a message that takes the session off the record, False for one that puts it on the record, else None.

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


def notice(message: object, *, always_off: bool) -> str:
    """What the agent is told of a message that switches the session; empty for other messages.

    `always_off` is the setting `off_record`, with which no message puts a session on the record.
    """
    switched = switch(message)
    if switched is None:
        return ""
    if always_off:
        return STAYS_OFF
    return SWITCHED_OFF if switched else SWITCHED_ON


def on_record(turns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The (user, answer) pairs of a transcript that were said on the record, without the switches themselves."""
    kept: list[tuple[str, str]] = []
    # Turns since the last switch. `off` is None while the switch before them may have been compressed away.
    stretch: list[tuple[str, str]] = []
    off: bool | None = None
    for pair in turns:
        switched = switch(pair[0])
        if switched is not None:
            # Turns of an unknown state that end with "on the record" were probably off it.
            if (switched and not off) or off is False:
                kept += stretch
            stretch, off = [], switched
        elif off is False and not pair[0]:
            # A question without words may be a summary in place of compressed turns, a switch among them.
            kept += stretch
            stretch, off = [pair], None
        else:
            stretch.append(pair)
    return kept if off else kept + stretch


class OffRecordSessions:
    """The sessions of one home that are off the record. Safe for any thread; shared with other processes by marks.

    In a home that cannot be read or written, this process goes by what it knows. Past 1,000 sessions the oldest are
    forgotten.
    """

    def __init__(self, state: Path) -> None:
        self._marks = Marks(state / "off_record", SESSIONS_MAX)
        self._lock = threading.Lock()
        self._off: dict[str, None] = {}
        # Changes that are not written yet: whether the session is off the record.
        self._unwritten: dict[str, bool] = {}

    def is_off(self, session: str) -> bool:
        """Whether a session is off the record."""
        with self._lock:
            return self._look_up(mark_name(session))

    def set(self, session: str, *, off: bool) -> None:
        """Take a session off the record, or put it on the record again."""
        name = mark_name(session)
        with self._lock:
            if off == self._look_up(name):
                return
            self._note(name, off=off)
            self._unwritten[name] = off
            _shorten(self._unwritten)
            self._write()
            if self._unwritten:
                log.warning(
                    "%s cannot be written: other processes do not know yet that a session went %s the record",
                    self._marks.folder,
                    "off" if off else "on",
                )

    def abandon(self) -> None:
        """Renew the lock in a forked child, where the thread that held it does not exist."""
        self._lock = threading.Lock()

    def _look_up(self, name: str) -> bool:
        self._write()
        if name not in self._unwritten:
            with contextlib.suppress(OSError):
                # A missing file means something only where the folder is there.
                self._marks.folder.stat()
                self._note(name, off=(self._marks.folder / name).exists())
        return name in self._off

    def _note(self, name: str, *, off: bool) -> None:
        self._off.pop(name, None)
        if off:
            self._off[name] = None
            _shorten(self._off)

    def _write(self) -> None:
        """Write the marks of the changes; those that fail are tried again at the next look-up."""
        if not self._unwritten:
            return
        with contextlib.suppress(OSError):
            make_private(self._marks.folder)
            for name, off in tuple(self._unwritten.items()):
                if off:
                    self._marks.add([name])
                else:
                    self._marks.remove(name)
                del self._unwritten[name]


def _shorten(names: dict[str, Any]) -> None:
    if len(names) > SESSIONS_MAX:
        del names[next(iter(names))]
