"""What the transcript of a session and the host's record of it tell: turns that are missing, and those taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ..files import mark_name
from ..hosts import state_db
from ..hosts.tool_calls import TurnRecord, savings, tools_by_answer
from ..hosts.transcript import exchanges, finished, is_compressed
from ..model import SessionEnded, Withdrawn, now
from . import attribution, off_record, withdrawal
from .home_context import HomeContext
from .interrupted import Interrupted, interrupted, unsilenced
from .session_context import SessionContext
from .state import ANCESTORS_MAX, EVENT_TURNS_MAX, Taken, Turns

# How many earlier sessions of a chat are looked at for turns that were taken back.
REWOUND_MAX = 3


class Replay:
    """Stores and withdraws turns of a conversation by its transcript. Safe for any thread.

    Each public method raises BadArgument when a client names a reserved theme.
    """

    def __init__(self, home: HomeContext, session: SessionContext, turns: Turns) -> None:
        self._home, self._session, self._turns = home, session, turns
        # The turns at the end of the transcript that were not handed over: the session may be over, or go on.
        self.unanswered: Sequence[Interrupted] = ()
        self._has_transcript = True

    def change(self) -> None:
        """Note that another session is taken up. Until something is said in it, hosts end it with the last transcript.

        That may have turns which were taken back, and those of a summary.
        """
        self._has_transcript = False

    def note_said(self, *, opened: bool = False) -> None:
        """Note that something is said in the session, so that it ends with a transcript of its own."""
        self._has_transcript = True
        if opened:  # It goes on, maybe off the record.
            self.unanswered = ()

    def end(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Store the turns of a transcript that are missing. Hosts call this more than once a session.

        It may run before `take_turn` of the last turn, which waits on a thread of the host.
        """
        self.unanswered = ()
        theme = self._session.theme()
        if not self._has_transcript or self._session.is_off(theme) or self._session.is_of_chat():
            return
        messages = self._home.own_messages(self._session.identity, self._session.id, self._session.lineage, messages)
        sessions = (*self._session.lineage.ancestors, self._session.id)
        with self._home.turn_lock:
            saves = self._turns.saves()
            awaited = [turn for session in sessions for turn in self._home.recent_turns.awaited(theme, session)]
        saved = savings(messages, self._home.settings.trusted_tools)
        for event in attribution.events(saved, saves, **self._session.origin(theme)):
            self._home.accept(event)
        if self._session.stores_turns:
            self._replay(theme, off_record.recorded(messages, merged=True), messages)
            record = TurnRecord(before=messages)
            self.unanswered = unsilenced(interrupted(awaited, record, self._home.settings.trusted_tools))

    def checkpoint(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Store the turns that are about to be compressed and are missing, as `end`; False when they are refused.

        Turns that are not to be stored need none. The host leaves summaries out, so after an earlier compression an
        answer may follow the question of another turn: then only turns that were not handed over yet are taken.
        """
        theme = self._session.allowed_theme()
        if theme is None or not self._session.stores_turns or self._session.is_off(theme) or self._session.is_of_chat():
            return True
        messages = self._home.own_messages(self._session.identity, self._session.id, self._session.lineage, messages)
        record = state_db.messages(self._home.home, self._session.id)
        gaps = not record or is_compressed(record)
        pairs = off_record.recorded(finished(messages), gaps=gaps, merged=True)
        return self._replay(theme, [pair for pair in pairs if not gaps or self._turns.awaits(pair[0])], messages)

    def _replay(self, theme: str, recorded: Sequence[tuple[str, str]], messages: Sequence[Mapping[str, Any]]) -> bool:
        """Store those of the turns that are missing; False when they are refused."""
        ancestors = self._home.ancestors(self._session.id, self._session.lineage)
        answers = (answer for _, answer in recorded if answer)
        silenced = self._home.off_record.silenced((self._session.id, *ancestors), answers)
        recorded = [pair for pair in recorded if pair[1] not in silenced]
        with self._home.turn_lock:
            pairs = [pair for pair in recorded if self._turns.complete(pair)]
        # A transcript does not say who wrote in a room.
        turns = [self._session.judge(user, assistant) for user, assistant in pairs]
        # One host replays withdrawn turns when nothing was said since.
        answered = tuple(turn for turn in turns if turn[1] and turn not in self._turns.withdrawn)
        if not answered:
            return True
        made_by = tools_by_answer(messages, self._home.settings.trusted_tools)
        sides = zip(pairs, turns, strict=True)
        tools = {mark_name(said): made_by[answer] for (_, answer), (_, said) in sides if answer in made_by}
        with self._home.turn_lock:
            replay = SessionEnded(
                turns=answered[-EVENT_TURNS_MAX:], ancestors=ancestors, parent_session_id=self._session.lineage.parent,
                metadata={"tools": tools} if tools else {}, **self._session.origin(theme),
            )  # fmt: skip
            accepted = self._home.accept(replay)
            # After an interrupted question, the last pair that is left belongs to an older turn.
            if accepted and not self._turns.current.is_taken and turns[-1][1] and pairs[-1] == recorded[-1]:
                self._turns.current.replayed = (self._session.id, turns[-1][1])
            return accepted

    def end_silence(self) -> None:
        """Mark the turns that the record has behind the last marked one, when a message is about to switch the session.

        The process in which they were said may have been killed before it handed them over, and no message tells.
        """
        session, home = self._session.id, self._home
        if home.off_record.is_silenced([session]):
            pairs = exchanges(state_db.messages(home.home, session, newest=True))
            answers = [answer for _, answer in pairs if answer]
            known = home.off_record.silenced([session], answers)
            last = max((place for place, answer in enumerate(answers, 1) if answer in known), default=len(answers))
            home.off_record.silence(session, *answers[last:])

    def stand(self, session: str, turns: Sequence[Taken]) -> bool:
        """Whether the host's record of a session has one of these turns, or may have: it cannot be read now."""
        if not turns:
            return False
        messages = state_db.messages(self._home.home, session, newest=True)
        return not messages or withdrawal.stand(turns, messages, self._session.may_be_stored)

    def take_back(self) -> None:
        """Withdraw the turns that were taken back, as the host's record says. May be called at any time, and again.

        In a messenger no hook tells of them before the next message, which may begin another session of the chat.
        """
        session, key = self._session.id, self._session.identity.gateway_session_key
        if not session:
            return
        at = now()  # turns that are said while the record is read are not in it
        messages = state_db.messages(self._home.home, session) if state_db.is_rewound(self._home.home, session) else []
        if gone := withdrawal.withdrawn_messages(messages):
            self._turns.withdrawn = frozenset(withdrawal.stored(exchanges(gone), self._session.may_be_stored))
            self._turns.withdrawn_until = max(message["written"] for message in gone)
            if self._turns.current.is_open and withdrawal.is_withdrawn(self._turns.current, messages):
                self._turns.withdrawn_question = self._turns.current.question
            self._withdraw(session, messages, at)
        for other in state_db.rewound(self._home.home, session, key, REWOUND_MAX) if key else ():
            if other != session:
                self._withdraw(other, state_db.messages(self._home.home, other), at)

    def _withdraw(self, session: str, messages: withdrawal.Messages, at: datetime) -> None:
        keep, theme, home = self._session.may_be_stored, self._session.theme(), self._home.home
        # An agent may have begun after the compression.
        compressed = state_db.compressed(home, session, ANCESTORS_MAX)
        if session == self._session.id:
            compressed = compressed or self._session.lineage.compressed
        before = {session: state_db.messages(home, session) for session in compressed}
        # The turns of a session that the host has deleted cannot be counted.
        continued = {session: found for session, found in before.items() if found}
        said = [*messages, *self._unrecorded_switch(session)]
        turns = withdrawal.withdrawn_turns(said, keep, off=self._session.is_off(theme, session))
        standing = withdrawal.remaining(turns, [*continued.values(), messages], keep)
        origin = self._session.origin(theme, session)
        self._home.accept(Withdrawn(at=at, turns=turns, standing=standing, continued=tuple(continued), **origin))

    def _unrecorded_switch(self, session: str) -> withdrawal.Messages:
        """The message that switches a session now: the host records it some time after the turn began."""
        turn = self._turns.current
        if turn.session_id != session or not turn.is_open or off_record.switch(turn.question) is None:
            return ()
        return ({"role": "user", "content": turn.question, "taken_back": False, "written": 0},)
