"""A conversation as one provider object sees it: whose it is, what it went on from, and what of it is kept."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..errors import BadArgument
from ..hosts import state_db
from ..hosts.environment import running_session_key, running_user, scrubber
from ..hosts.transcript import carried, exchanges
from ..model import Add, Caller, Delegated, Event, Metadata, Remove, Replace, SessionEnded, TurnTaken, Withdrawn, now
from ..runtime import Runtime
from ..text.theme_names import reserved
from . import off_record
from .capture import kept
from .pending_turns import PendingTurns
from .themes import ROOM, Identity, allowed

READERS_ONLY = frozenset({"cron", "subagent", "flush"})
TRANSCRIPT_TURNS_MAX = 2000
ANCESTORS_MAX = 20
INTERRUPTED_MAX = 100
LEFT_MAX = 8
OFF_RECORD = "Nothing of this session is stored from now on, until the user says: on the record."
ON_RECORD = "What is said in this session is stored again."
STAYS_OFF = "Nothing of this session is stored: the operator has set off_record."


class Conversation:
    """Turns what the host tells of a session into events. Safe for any thread."""

    def __init__(self, runtime: Runtime, identity: Identity, session_id: str, context: str) -> None:
        self.runtime, self.identity, self.session_id = runtime, identity, session_id
        self._context = context
        self._ancestors: tuple[str, ...] = ()
        # Of the ancestors, those whose transcript was compressed: their turns are this session's own.
        self._compressed: tuple[str, ...] = ()
        self._taken_back: set[tuple[str, str]] = set()
        # Of the running turn: whether its `take_turn` is still to come and whether it is off the record, and where a
        # replay took its answer before that.
        self._turn_open = self._turn_off = False
        self._overtaken: tuple[str, str] | None = None
        self._author = self._question = ""
        self._opened = now()
        # The question of a turn that was taken back before its `take_turn`.
        self._overdue: str | None = None
        self._opened_turns = PendingTurns()
        # Whether something was ever said off the record here.
        self._was_off = False
        # The questions of turns that were interrupted: hosts hand over no such turn, but replay what there is of it.
        self._interrupted: deque[str] = deque(maxlen=INTERRUPTED_MAX)
        # The turns that may have been off the record: a replay has all in their order and shows which were not.
        self._left: deque[tuple[str, str]] = deque(maxlen=LEFT_MAX)

    @property
    def primary(self) -> bool:
        """Whether a person talks here, and not a job."""
        return self._context not in READERS_ONLY

    def theme(self) -> str | None:
        """The theme of this very call; None when the operator does not allow it. Raises BadArgument."""
        theme = self._theme()
        return theme if allowed(theme, self.runtime.settings.allowed_themes) else None

    def caller(self, theme: str) -> Caller:
        """On whose behalf a tool runs that the agent calls now."""
        marks = {} if self.primary else {"context": self._context}
        return Caller(theme=theme, session_id=self.session_id, marks=marks, off_record=self.off_record())

    def off_record(self) -> bool:
        """Whether nothing is to be stored now."""
        return self.runtime.settings.off_record or self.runtime.off_record.is_off(self._session_name(self.session_id))

    def go_on(self, session_id: str, parent_session_id: str, *, anew: bool, reason: str = "") -> None:
        """Go on under another session id. Unless it begins `anew`, the transcript of the old one goes on in it."""
        before = parent_session_id or self.session_id
        if not session_id or session_id == self.session_id:
            return
        off, self.session_id, self._taken_back = self.off_record(), session_id, set()
        self._compressed = (*self._compressed, before)[-ANCESTORS_MAX:] if reason == "compression" else ()
        if anew and self._turn_open and off_record.switch(self._question):
            # Hosts begin a session behind what waits in their queue, and its first turn may be open by then.
            self.runtime.off_record.set(self._session_name(session_id), off=True)
        if anew or reason == "resume":
            # What a resumed session went on from stands in the host's record.
            self._ancestors = ()
            return
        self._ancestors = (*self._ancestors, before)[-ANCESTORS_MAX:]
        if off:
            self.runtime.off_record.set(self._session_name(session_id), off=True)

    def open_turn(self, message: Any = "", author_id: str = "") -> None:
        """A turn begins, which may be the one that takes the session off the record."""
        # A replay leaves out by itself what is off the record, and brings the same question if it is asked again on it.
        if self._turn_open and self._question and not self._turn_off:
            self._interrupted.append(self._question)
        self._turn_open, self._overtaken, self._question, self._opened = True, None, str(message), now()
        if self._overdue == self._question:
            # It is asked again; the turn that was taken back may have been interrupted, and then it never comes.
            self._overdue = None
        self._author = author_id or running_user() or self.identity.user_id
        switched = off_record.switch(message)
        if switched is not None:
            self.runtime.off_record.set(self._session_name(self.session_id), off=switched)
        if self.runtime.settings.off_record:
            # A process without this setting may go on with the session, and would store it from its transcript.
            self.runtime.off_record.set(self._session_name(self.session_id), off=True)
        self._turn_off = switched is not None or self.off_record()
        self._was_off = self._was_off or self._turn_off
        with self.runtime.turn_lock:
            self._opened_turns.begin(self._question, off=self._turn_off)

    def notice(self, message: Any) -> str:
        """What the agent is told of a message that takes the session off the record, or puts it on again."""
        switched = off_record.switch(message)
        if switched is None:
            return ""
        if self.runtime.settings.off_record:
            return STAYS_OFF
        return OFF_RECORD if switched else ON_RECORD

    def take_turn(self, user: Any, assistant: Any, session_id: str = "", author_id: str = "") -> None:
        """Keep a turn, if it is substantive and no replay has brought it already."""
        question = str(user)
        if question == self._question:
            self._turn_open = False
        elif question in self._interrupted:
            # It was only late.
            self._interrupted.remove(question)
        with self.runtime.turn_lock:
            off = self._opened_turns.hand_over(question)
        if question == self._overdue:
            self._overdue = None
            return
        if self.off_record() if off is None else off:
            self._left.append((question, str(assistant)))
            return
        if not self._keeps_turns:
            return
        told, answered = kept(user, assistant, self.runtime.settings)
        with self.runtime.turn_lock:
            overtaken, self._overtaken, self._turn_open = self._overtaken, None, False
            if (told or answered) and overtaken != (session_id or self.session_id, answered):
                metadata = self._signature(author_id or self._author)
                self._accept(
                    lambda common: TurnTaken(
                        user=told, assistant=answered, parent_session_id=self._parent_session_id, metadata=metadata,
                        **common,
                    ),
                    session_id,
                )  # fmt: skip

    def end(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Keep the turns that were missed. Hosts call this more than once a session and replay everything.

        It may run before the `take_turn` of the last turn, which waits on a thread of the host.
        """
        if not self._keeps_turns or self.off_record():
            return
        recorded = off_record.on_record(exchanges(messages))
        pairs = [pair for pair in recorded if pair[0] not in self._interrupted or pair in self._left]
        turns = [kept(user, assistant, self.runtime.settings) for user, assistant in pairs]
        # One host replays what was taken back when nothing was said since.
        answered = tuple(turn for turn in turns if turn[1] and turn not in self._taken_back)[-TRANSCRIPT_TURNS_MAX:]
        if not answered:
            return
        parents = state_db.ancestors(self.runtime.home.path, self.session_id, ANCESTORS_MAX)
        known = tuple(dict.fromkeys((*parents, *self._ancestors)))
        with self.runtime.turn_lock:
            # The last pair of an interrupted question is no answer to it: what stands before that is an older turn's.
            if self._turn_open and turns[-1][1] and pairs[-1] == recorded[-1]:
                self._overtaken = (self.session_id, turns[-1][1])
            self._accept(
                lambda common: SessionEnded(
                    turns=answered, ancestors=known, parent_session_id=self._parent_session_id, **common
                )
            )

    def take_back(self) -> None:
        """Withdraw the turns that the host's record says were taken back. Harmless when there are none, or again."""
        if not self.session_id:
            return
        # What is said while the record is read does not stand in it.
        at = now()
        told = state_db.messages(self.runtime.home.path, self.session_id)
        taken_back = [message for message in told if message["taken_back"]]
        if not taken_back:
            return
        self._taken_back = set(self._as_stored(taken_back))
        if self._turn_open and self._is_gone(told):
            self._overdue = self._question
        # What was said off the record was not stored, and must not be told to the spool now.
        recorded = set(map(_mark, self._kept(off_record.on_record(exchanges(told)))))
        # A turn is known by its answer, as in a replay.
        gone = {_mark(turn): turn for turn in self._as_stored(taken_back) if any(turn) and _mark(turn) in recorded}
        before = {session: state_db.messages(self.runtime.home.path, session) for session in self._compressed}
        # Of a session that the host has forgotten nobody knows what stands.
        continued = tuple(session for session, messages in before.items() if messages)
        times = self._times([*(before[session] for session in continued), told])
        turns = tuple(gone.values())[-TRANSCRIPT_TURNS_MAX:]
        left = tuple(max(0, times[_mark(turn)]) for turn in turns)
        self._accept(lambda common: Withdrawn(at=at, turns=turns, standing=left, continued=continued, **common))

    def change_entry(self, action: str, target: str, content: str, metadata: Mapping[str, Any]) -> None:
        """Mirror a change of the built-in memory. Raises BadArgument for an unknown action."""
        known = dict(metadata)
        old: dict[str, Any] = {
            "previous": str(known.pop("previous_content", "") or ""),
            "old_text": str(known.pop("old_text", "") or ""),
        }
        if not self.primary:
            known["context"] = self._context

        def change(common: dict[str, Any]) -> Event:
            common |= {"target": target, "metadata": known}
            match action:
                case "add":
                    return Add(content=content or "", **common)
                case "replace":
                    return Replace(content=content or "", **old, **common)
                case "remove":
                    return Remove(**old, **common)
            raise BadArgument(f"memory action {action[:20]!r} is unknown; known are add, replace, remove")

        self._accept(change, str(known.get("session_id") or ""))

    def delegate(self, task: str, result: str, child_session_id: str) -> None:
        """Keep what was given to a child agent and what came back, where turns are kept of the parent.

        A child may come back long after it was sent, so none is kept once something was said off the record.
        """
        writes = self._context in self.runtime.settings.write_contexts
        if (task or result) and writes and not self._was_off and not self.off_record():
            self._accept(
                lambda common: Delegated(task=task, result=result, child_session_id=child_session_id, **common)
            )

    @property
    def _keeps_turns(self) -> bool:
        settings = self.runtime.settings
        return settings.sync_turns and self._context in settings.write_contexts

    @property
    def _parent_session_id(self) -> str:
        return self._ancestors[-1] if self._ancestors else ""

    def _is_gone(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the open turn was taken back: all that the host recorded since it began, and its question."""
        since = [message for message in messages if message["written"] >= self._opened.timestamp()]
        gone = [message for message in messages if message["taken_back"]]
        asked = any(message["role"] == "user" and message["content"] == self._question for message in gone)
        return asked and bool(since) and not _standing(since)

    def _times(self, sessions: Sequence[Sequence[Mapping[str, Any]]]) -> Counter[tuple[str, str]]:
        """How often each turn stands in sessions of which each goes on with the compressed transcript of the last."""
        times: Counter[tuple[str, str]] = Counter()
        for messages in sessions:
            times.update(map(_mark, self._as_stored(_standing(messages))))
        parts = [part for messages in sessions for part in _parts(messages)]
        for before, after in pairwise(parts):
            times.subtract(map(_mark, self._kept(carried(exchanges(_standing(before)), exchanges(after)))))
        return times

    def _as_stored(self, messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """The turns of the host's record as they were handed over and kept."""
        return self._kept(exchanges(messages))

    def _kept(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        scrub = scrubber()
        return [kept(scrub(user), scrub(answer), self.runtime.settings) for user, answer in pairs]

    def _signature(self, author_id: str) -> Metadata:
        """Who said it, in a room: a pseudonym, because the theme tells the room alone."""
        theme = self._theme()
        if not author_id or not reserved(theme) or not theme.startswith(ROOM):
            return {}
        return {"author": self.runtime.author(self.identity.platform, author_id)}

    def _session_name(self, session_id: str) -> str:
        """What tells a session apart: its id and, where several themes may share one, the theme."""
        theme = self._theme()
        return session_id if reserved(theme) else f"{session_id}:{theme}"

    def _theme(self) -> str:
        # Without a key from the gateway the variable may come from the environment of the process: then it is not read.
        key = running_session_key() if self.identity.gateway_session_key else None
        return self.runtime.theme(self.identity, key)

    def _accept(self, make: Callable[[dict[str, Any]], Event], session_id: str = "") -> None:
        common = {"theme": self._theme(), "home": self.runtime.home.id, "session_id": session_id or self.session_id}
        event = make(common)
        files = self.runtime.files
        if isinstance(event, Add | Replace | Remove):
            files.change(event, stored=not self.off_record())
        else:
            self.runtime.accept(event)


def _standing(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [message for message in messages if not message["taken_back"]]


def _parts(messages: Sequence[Mapping[str, Any]]) -> list[Sequence[Mapping[str, Any]]]:
    """A session's messages up to its last compression in place and those after it; no part is empty."""
    end = max((place for place, message in enumerate(messages, 1) if message["compacted"]), default=0)
    return [part for part in (messages[:end], messages[end:]) if part]


def _mark(turn: tuple[str, str]) -> tuple[str, str]:
    user, answer = turn
    return ("", answer) if answer else (user, "")
