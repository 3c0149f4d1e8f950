"""What the conversations of a home share: settings, keys, marks, and where events go."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from ..files import LastingMarks, Marks, mark_name
from ..hosts import state_db
from ..hosts.config import person_key
from ..hosts.environment import in_gateway, running, working_folder
from ..hosts.transcript import without_repeated
from ..model import Event
from ..settings import Settings
from ..text import personal_keys
from ..text.cleaning import clean
from ..text.keep import TERMINALS
from ..text.theme_names import normalise, reserved
from .capture import Capture
from .chats import Chat
from .off_record import switch
from .outages import Outages
from .person_key import PersonKey
from .project import project_of
from .state import ANCESTORS_MAX, Lineage, Taken, Turn
from .themes import ROOM, Identity, author_of, keyed, templated_theme, theme_of

log = logging.getLogger("hermes.pgvector")

OFF_RECORD_MAX = 100_000
LATE_SWITCHES_MAX = 1000
# Sessions whose number of corrections is known.
CORRECTED_MAX = 10_000
# The length of all texts that are kept to see that a question is asked again, and of how many turns of a session.
LAST_TURNS_CHARS_MAX, LAST_TURNS_MAX = 4_000_000, 10
# The same of turns that began, with so much for each besides its question, and how many of a session.
OPENED_CHARS_MAX, OPENED_CHARS, OPENED_MAX = 4_000_000, 500, 20


class HomeContext:
    """The settings, keys and marks of a home, and where events go. Made once by the runtime; safe for any thread.

    `home_id` returns the id of the home, empty when the home cannot be written. `accept(event)` makes an event durable.
    `change_entry(event, stored=...)` does so for a change of a memory file; with `stored` false nothing new gets into
    the database. `off_record` are the sessions off the record. `turn_lock` orders the turns of conversations with their
    replays.
    """

    def __init__(
        self,
        settings: Settings,
        home: Path,
        state: Path,
        *,
        home_id: Callable[[], str],
        accept: Callable[[Event], bool],
        change_entry: Callable[..., bool],
    ) -> None:
        self.settings, self.home = settings, home
        self.home_id, self.accept, self.change_entry = home_id, accept, change_entry
        self.capture = Capture(settings)
        self.person_key = PersonKey(state, person_key(home))
        self.off_record = sessions_off_record(state)
        self._late_switches: LRUCache[str, str] = LRUCache(LATE_SWITCHES_MAX)
        self._corrections: LRUCache[tuple[str, str], int] = LRUCache(CORRECTED_MAX)
        self._last_turns: LRUCache[tuple[str, str], Sequence[Taken]] = LRUCache(LAST_TURNS_CHARS_MAX, getsizeof=_length)
        self._opened: LRUCache[tuple[str, str], Sequence[Turn]] = LRUCache(OPENED_CHARS_MAX, getsizeof=_chars)
        self._warned = False
        self.turn_lock = threading.Lock()
        self.outages = Outages(state / "outages", settings.outage_after_s)

    def located(self, identity: Identity, given_folder: str = "", session_id: str = "") -> Identity:
        """The identity with the session key of its chat, or the project of its working folder, if settings ask for it.

        A gateway says nothing of the chat to an agent that only compresses a session: then its record is asked. Reads a
        few small files. Raises Unavailable when it cannot be read now.
        """
        if identity.platform in TERMINALS and session_id and not identity.gateway_session_key and in_gateway():
            identity = replace(identity, **state_db.origin(self.home, session_id))
        identity = keyed(identity, running("HERMES_SESSION_KEY"))
        if identity.gateway_session_key or "{project}" not in self.settings.theme_template:
            return identity
        return replace(identity, project=project_of(working_folder(identity.platform, given_folder)))

    def theme(self, identity: Identity, session_key: str | None) -> str:
        """The theme of a hook that runs now, as `theme_of`. Raises BadArgument for a reserved name."""
        identity, settings = keyed(identity), self.settings
        if not identity.gateway_session_key:
            return templated_theme(identity, settings)
        aliases, hashes = settings.theme_aliases, settings.hash_personal_keys
        theme = self.person_key.name(
            lambda key: theme_of(identity, session_key, aliases=aliases, person_key=key, hashes_personal=hashes)
        )
        if not (self._warned or reserved(theme)) and (looks_like := personal_keys.kind(theme)):
            self._warned = True
            log.warning(
                "a session key looks like %s and is the name of a theme, in the database and in files; to have such "
                "keys hashed: hermes-pgvector settings set hash_personal_keys true; hermes-pgvector remap --personal",
                looks_like,
            )
        return theme

    def ancestors(self, session_id: str, lineage: Lineage) -> tuple[str, ...]:
        """The sessions that a session continues, as the host has recorded and as its agent knows, the nearest last."""
        recorded = state_db.ancestors(self.home, session_id, ANCESTORS_MAX)
        return tuple(dict.fromkeys((*recorded, *lineage.ancestors)))

    def continued(self, session_id: str, lineage: Lineage) -> tuple[str, ...]:
        """As `ancestors`, without sessions after which one began anew."""
        recorded = state_db.continued(self.home, session_id, ANCESTORS_MAX) or ()
        return tuple(map(clean, dict.fromkeys((*recorded, *lineage.ancestors))))

    def own_messages(
        self, identity: Identity, session_id: str, lineage: Lineage, messages: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        """The messages of a session without those that were delivered into it, as hosts do with chats, and copies."""
        messages = without_repeated(messages)
        if not identity.chat_id:
            return messages
        return state_db.own(self.home, (*self.continued(session_id, lineage), session_id), messages)

    def off_record_marks(self, theme: str, key: str, session_id: str) -> list[str]:
        """The marks of a session off the record, in this home; any of them counts.

        Settings and working folders may give its theme another name while it goes on, so the session key, or that there
        is none, counts as well. The id alone counts in chats of the host: clients choose ids and name themes.
        """
        names = dict.fromkeys(f"{session_id}:{name}" for name in (theme, normalise(key)))
        return [mark_name(name) for name in ([session_id] if reserved(theme) and Chat.of(key) else []) + list(names)]

    def carry_off_record(self, session_id: str, marks: Callable[[str], list[str]]) -> bool | None:
        """Take a session off the record that went on from one which was, by `/branch` or a compression.

        The agent of a messenger is told nothing of it, so the record is asked. A switch that is in it was said in the
        session, or copied into it. `marks(session)` are the marks of a session. Returns whether it is taken off now;
        None when the record cannot be read.
        """
        before = state_db.continued(self.home, session_id, ANCESTORS_MAX)
        if before is None:
            return None
        own = marks(session_id) if before else []

        def was_off(session: str, after: str) -> bool:
            marked = [mark for mark in marks(session) if mark in self.off_record]
            at = state_db.began(self.home, after) if marked else 0
            return any(not at or self.off_record.marked_at(mark) <= at for mark in marked)

        if not before or any(mark in self.off_record for mark in own):
            return False
        told = last_switch(self.home, session_id)
        if told is False and self._only_copied(before[-1], session_id):
            told = None
        is_off = went_on_off(self.home, (*before, session_id), was_off) if told is None else told
        if is_off:
            unsaid = [] if told or not self.is_silenced(before) else [turn_mark(session_id)]
            self.off_record.change([*own, *unsaid], marked=True)
        return is_off

    def _only_copied(self, before: str, session_id: str) -> bool:
        """Whether the switches of a session are copies, of those before a correction that no message tells."""
        if not self.is_silenced([before]):
            return False
        began = state_db.began(self.home, session_id)
        copied = sum(at <= began for _, at, _ in _switches(self.home, before))
        return sum(1 for _ in _switches(self.home, session_id)) <= copied

    def silence(self, session_id: str, *answers: str) -> None:
        """Note that turns were off the record although no message in one host's record of them may say so."""
        if answers:  # a change lists all marks
            self.off_record.change([turn_mark(session_id, answer) for answer in answers], marked=True)

    def is_silenced(self, sessions: Iterable[str]) -> bool:
        """Whether the turns that are said now in one of these sessions are."""
        return any(turn_mark(session) in self.off_record for session in sessions)

    def silenced(self, sessions: Sequence[str], answers: Iterable[str]) -> frozenset[str]:
        """As `silenced_answers`. The marks are listed once."""
        marks: Marks | frozenset[str] = self.off_record
        with suppress(OSError):
            marks = self.off_record.names()
        return silenced_answers(marks, sessions, answers) if marks else frozenset()

    def switch_late(self, session_id: str, marks: list[str], message: str) -> None:
        """Take a session off the record whose agent has answered the message that says so already."""
        self.off_record.change([*marks, turn_mark(session_id)], marked=True)
        with self.turn_lock:
            self._late_switches[marks[0]] = message

    def late_switch(self, marks: list[str]) -> str:
        """The message of `switch_late`, of which the agent is told now; empty when there is none."""
        with self.turn_lock:
            return self._late_switches.pop(marks[0], "")

    def unheard(self, theme: str, session_id: str, earlier: Sequence[str], late: int, *, missed: int) -> Sequence[str]:
        """Those corrections before a turn that were not there when the turn before was handed over.

        Hosts put what was said before the model's first answer to the last result of a tool, also of an earlier turn,
        so that no transcript tells which turn it belongs to, and hand over no turn that was interrupted. `late` is how
        many there are up to the end of this turn. `missed` are in turns that were interrupted since this process takes
        part. The caller holds `turn_lock`.
        """
        known = self._corrections.get((theme, session_id), len(earlier) - missed)
        self._corrections[theme, session_id] = late
        return earlier[known:]

    def note_opened(self, theme: str, session_id: str, turn: Turn) -> Sequence[Turn]:
        """Note that a turn began; returns those of the session that are still awaited. The caller holds `turn_lock`.

        They are of the home, because a host that stops a turn may take the next message with another provider object.
        """
        noted = self._opened.pop((theme, session_id), ())
        awaited = [turn for turn in noted if turn.may_come][-OPENED_MAX:]
        if _chars(opened := (*awaited, turn)) <= OPENED_CHARS_MAX:
            self._opened[theme, session_id] = opened
        return awaited

    def awaited(self, theme: str, session_id: str) -> Sequence[Turn]:
        """The turns of a session that began and were not handed over yet. The caller holds `turn_lock`."""
        return [turn for turn in self._opened.get((theme, session_id), ()) if turn.may_come]

    def note_turn(self, theme: str, session_id: str, turn: Taken) -> None:
        """Note the last turn of a session. The caller holds `turn_lock`.

        It is of the home, because a messenger's next message may be taken by another provider object.
        """
        noted = self._last_turns.pop((theme, session_id), ())
        # The others are in its transcript no more.
        place = -1 if turn.place is None else turn.place
        before = [other for other in noted if other.place is not None and other.place < place]
        noted = [*before, turn][-LAST_TURNS_MAX:]
        if any(turn.sides) and _length(noted) <= LAST_TURNS_CHARS_MAX:
            self._last_turns[theme, session_id] = noted

    def last_turns(self, theme: str, session_id: str) -> Sequence[Taken]:
        """The last turns of a session that were noted, in order."""
        with self.turn_lock:
            return self._last_turns.get((theme, session_id), ())

    def author(self, platform: str, user_id: str) -> str:
        """The pseudonym of a person in a chat room."""
        return self.person_key.name(lambda key: author_of(platform, user_id, person_key=key))

    def author_in(self, theme: str, identity: Identity, speaker: str | None) -> dict[str, Any]:
        """The pseudonym of the speaker in a chat room, whose theme does not say who speaks.

        Where the host does not tell, it is that of who opened the session. None is one of several.
        """
        speaker = identity.user_id if speaker == "" else speaker
        if not speaker or not reserved(theme) or not theme.startswith(ROOM):
            return {}
        return {"author": self.author(identity.platform, speaker)}

    def abandon(self) -> None:
        """Renew the locks in a forked child, where the threads that held them do not exist."""
        self.turn_lock = threading.Lock()
        self.person_key.abandon()
        self.off_record.abandon()
        self.outages.abandon()


def turn_mark(session_id: str, answer: str = "") -> str:
    """The mark of a turn off the record that no message tells; without an answer, of a session whose turns are so now.

    One host writes the result of a tool into its record before it appends the correction that a person has made.
    """
    return mark_name(f"{session_id}\0{answer}")


def silenced_answers(marks: Marks | frozenset[str], sessions: Sequence[str], answers: Iterable[str]) -> frozenset[str]:
    """Those of the answers whose turn in one of these sessions is marked as off the record, by `turn_mark`."""
    return frozenset(said for said in answers if any(turn_mark(each, said) in marks for each in sessions))


def sessions_off_record(state: Path) -> LastingMarks:
    """The marks of the sessions off the record, in the state folder of their home."""
    meaning = "that a session is off the record, or on it, and may store it"
    return LastingMarks(state / "off_record", OFF_RECORD_MAX, meaning)


def last_switch(home: Path, session_id: str) -> bool | None:
    """What the last message that switches a session has made of it, as `switch`; None when there is none.

    None, too, when a result of a tool after `on the record` says that it is off: that may be forged.
    """
    place, told = next(((number, off) for number, _, off in _switches(home, session_id)), (0, None))
    corrected = state_db.corrected(home, session_id) if told is False else ()
    return None if any(number > place and any(map(switch, texts)) for number, texts in corrected) else told


def _switches(home: Path, session_id: str) -> Iterator[tuple[int, float, bool]]:
    """The messages that switch a session, the newest first: id, when it was written, and whether off the record."""
    said = (found for found in reversed(state_db.messages(home, session_id, newest=True)) if found["role"] == "user")
    switches = ((found["id"], found["written"], switch(found["content"])) for found in said if not found["taken_back"])
    return ((number, at, off) for number, at, off in switches if off is not None)


def went_on_off(home: Path, sessions: Sequence[str], was_off: Callable[[str, str], bool]) -> bool:
    """Whether the last of these sessions, which go on from each other, was off the record at its beginning.

    `was_off(session, after)` is whether a session is marked so since before the one `after` it. A session without a
    mark goes on from it when nothing in it says `on the record`, as one in which nobody has spoken.
    """
    marked = [place for place, pair in enumerate(pairwise(sessions), 1) if was_off(*pair)]
    return bool(marked) and all(last_switch(home, session) is not False for session in sessions[marked[-1] : -1])


def _chars(turns: Sequence[Turn]) -> int:
    return sum(OPENED_CHARS + len(turn.question) for turn in turns)


def _length(turns: Sequence[Taken]) -> int:
    return sum(turn.chars() for turn in turns)
