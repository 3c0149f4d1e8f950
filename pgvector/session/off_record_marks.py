"""The marks of what is off the record in a home: its sessions, and turns of which no message tells."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from cachetools import LRUCache

from ..files import LastingMarks, Marks, mark_name
from ..hosts import state_db
from ..hosts.runtime_messages import is_written_by_host
from ..hosts.transcript import MERGED
from ..text.theme_names import normalise, reserved
from .chats import Chat
from .off_record import switch
from .state import ANCESTORS_MAX

OFF_RECORD_MAX = 100_000
LATE_SWITCHES_MAX = 1000


class OffRecordMarks(LastingMarks):
    """The marks of a home, in its state folder, and what its host's record says of them. Safe for any thread."""

    def __init__(self, home: Path, state: Path) -> None:
        meaning = "that a session is off the record, or on it, and may store it"
        super().__init__(state / "off_record", OFF_RECORD_MAX, meaning)
        self._home = home
        self._late: LRUCache[str, str] = LRUCache(LATE_SWITCHES_MAX)
        self._late_lock = threading.Lock()

    def carry(self, session_id: str, marks: Callable[[str], list[str]], *, of_chat: bool) -> bool | None:
        """Take a session off the record that went on from one which was, by `/branch`, a compression or a terminal.

        The agent of a messenger is told nothing of it, so the record is asked. A switch that is in it was said in the
        session, or copied into it. `marks(session)` are the marks of a session. A terminal goes on with that of a
        chat, or of a client, whose marks it does not know, with `of_chat`. Returns whether it is taken off now; None
        when the record cannot be read. Raises Unavailable while the host locks it.
        """
        before = state_db.continued(self._home, session_id, ANCESTORS_MAX)
        if before is None:
            return None
        before = before or state_db.left_in_terminal(self._home, session_id)
        own = marks(session_id) if before or of_chat else []

        def was_off(session: str, after: str) -> bool:
            marked = [mark for mark in marks(session) if mark in self]
            at = state_db.began(self._home, after) if marked else 0
            return any(not at or self.marked_at(mark) <= at for mark in marked)

        if not own or any(mark in self for mark in own):
            return False
        told = last_switch(self._home, session_id)
        if told is False and before and self._only_copied(before[-1], session_id):
            told = None
        if told is None and of_chat:
            earlier = (last_switch(self._home, session) for session in reversed(before))
            told = next((switched for switched in earlier if switched is not None), None)
        is_off = went_on_off(self._home, (*before, session_id), was_off) if told is None else told
        if is_off:
            unsaid = [] if told or not self.is_silenced(before) else [turn_mark(session_id)]
            self.change([*own, *unsaid], marked=True)
        return is_off

    def _only_copied(self, before: str, session_id: str) -> bool:
        """Whether the switches of a session are copies, of those before a correction that no message tells."""
        if not self.is_silenced([before]):
            return False
        began = state_db.began(self._home, session_id)
        copied = sum(at <= began for _, at, _ in _switches(self._home, before))
        return sum(1 for _ in _switches(self._home, session_id)) <= copied

    def silence(self, session_id: str, *answers: str) -> None:
        """Note that turns were off the record although no message in one host's record of them may say so."""
        if answers:  # a change lists all marks
            self.change([turn_mark(session_id, answer) for answer in answers], marked=True)

    def is_silenced(self, sessions: Iterable[str]) -> bool:
        """Whether the turns that are said now in one of these sessions are."""
        return any(turn_mark(session) in self for session in sessions)

    def silenced(self, sessions: Sequence[str], answers: Iterable[str]) -> frozenset[str]:
        """As `silenced_answers`. The marks are listed once."""
        marks: Marks | frozenset[str] = self
        with suppress(OSError):
            marks = self.names()
        return silenced_answers(marks, sessions, answers) if marks else frozenset()

    def switch_late(self, session_id: str, marks: Sequence[str], message: str) -> None:
        """Take a session off the record whose agent has answered the message that says so already."""
        self.change([*marks, turn_mark(session_id)], marked=True)
        with self._late_lock:
            self._late[marks[0]] = message

    def late_switch(self, marks: Sequence[str]) -> str:
        """The message of `switch_late`, of which the agent is told now; empty when there is none."""
        with self._late_lock:
            return self._late.pop(marks[0], "")

    def abandon(self) -> None:
        """Renew the locks in a forked child, where the threads that held them do not exist."""
        super().abandon()
        self._late_lock = threading.Lock()


def session_marks(theme: str, key: str, session_id: str, *, terminal: bool) -> list[str]:
    """The marks of a session off the record, in this home; any of them counts.

    Settings and working folders may give its theme another name while it goes on, so the session key, or that there
    is none, counts as well. The id alone counts in chats of the host, and in terminals, which may go on with the
    session of a chat: clients choose ids and name themes.
    """
    names = dict.fromkeys(f"{session_id}:{name}" for name in (theme, normalise(key)))
    of_host = terminal or (reserved(theme) and Chat.of(key))
    return [mark_name(name) for name in ([session_id] if of_host else []) + list(names)]


def turn_mark(session_id: str, answer: str = "") -> str:
    """The mark of a turn off the record that no message tells; without an answer, of a session whose turns are so now.

    One host writes the result of a tool into its record before it appends the correction that a person has made.
    """
    return mark_name(f"{session_id}\0{answer}")


def silenced_answers(marks: Marks | frozenset[str], sessions: Sequence[str], answers: Iterable[str]) -> frozenset[str]:
    """Those of the answers whose turn in one of these sessions is marked as off the record, by `turn_mark`."""
    return frozenset(said for said in answers if any(turn_mark(each, said) in marks for each in sessions))


def last_switch(home: Path, session_id: str) -> bool | None:
    """What the last message that switches a session has made of it, as `switch`; None when there is none.

    None, too, when a result of a tool after `on the record` says that it is off: that may be forged.
    """
    place, told = next(((number, off) for number, _, off in _switches(home, session_id)), (0, None))
    corrected = state_db.corrected(home, session_id) if told is False else ()
    return None if any(number > place and any(map(switch, texts)) for number, texts in corrected) else told


def _switches(home: Path, session_id: str) -> Iterator[tuple[int, float, bool]]:
    """The messages that switch a session, the newest first: id, when it was written, and whether off the record."""
    messages = state_db.messages(home, session_id, newest=True, raises=True)
    said = (message["content"] for message in messages if message["role"] == "user")
    # To look for deliveries, all sessions before are read: few sessions need it.
    if not any(switch(part) is not None for text in said for part in (text, *text.split(MERGED))):
        return
    sessions = (*(state_db.continued(home, session_id, ANCESTORS_MAX) or ()), session_id)
    for found in reversed(state_db.own(home, sessions, messages)):
        by_person = found["role"] == "user" and not (found["taken_back"] or is_written_by_host(found, found["content"]))
        if by_person and (off := switch(found["content"])) is not None:
            yield found["id"], found["written"], off


def went_on_off(home: Path, sessions: Sequence[str], was_off: Callable[[str, str], bool]) -> bool:
    """Whether the last of these sessions, which go on from each other, was off the record at its beginning.

    `was_off(session, after)` is whether a session is marked so since before the one `after` it. A session without a
    mark goes on from it when nothing in it says `on the record`, as one in which nobody has spoken.
    """
    marked = [place for place, pair in enumerate(pairwise(sessions), 1) if was_off(*pair)]
    return bool(marked) and all(last_switch(home, session) is not False for session in sessions[marked[-1] : -1])
