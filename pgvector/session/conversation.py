"""One conversation, which turns the hooks of a host into events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from ..errors import Unavailable
from ..hosts.environment import author_now, recorded_answer, scrubber
from ..hosts.runtime_messages import opening
from ..hosts.tool_calls import TurnRecord, plain_id
from ..hosts.transcript import is_answer, text_of
from ..model import Caller, Delegated, TurnTaken, now
from . import attribution, off_record, withdrawal
from .home_context import HomeContext
from .identity import Identity
from .interrupted import Interrupted, interrupted, with_corrections
from .off_record_marks import turn_mark
from .outages import Notice
from .replay import Replay
from .session_context import SessionContext
from .state import Taken, Turn, Turns
from .themes import allowed
from .withdrawal import Pair

NOT_RECORDED = TurnRecord()


class Conversation:
    """The conversation of one provider object. Safe for any thread.

    Each public method is a hook of the host and raises BadArgument when a client names a reserved theme.
    `given_folder` is the working folder that the host named, if it did. `replay` reads the transcripts of `session`.
    """

    def __init__(
        self, home: HomeContext, identity: Identity, session_id: str, agent_context: str, given_folder: str = ""
    ) -> None:
        self._home, self._settings, self._turns = home, home.settings, Turns()
        self.session = SessionContext(home, identity, session_id, agent_context, given_folder)
        self.replay = Replay(home, self.session, self._turns)
        self._is_carried = not session_id or identity.platform == "api_server"
        self._carry()

    def notices(self, message: str) -> list[Notice]:
        """What the person who wrote a message is told of the memory now. A job, or the host itself, is told nothing."""
        if not self.session.primary or self._home.capture.by_host(message, self.session.agent_context):
            return []
        theme, outages = self.session.theme(), self._home.outages
        permitted = allowed(theme, self._settings.allowed_themes)
        return (outages.notices if permitted else outages.refused)(theme, self.session.id)

    def caller(self, theme: str) -> Caller:
        """On whose behalf a tool runs that the agent calls now."""
        refusal = partial(self._home.capture.why_no_entry, source=self.session.identity.source(self._speaker()))
        off = self.session.is_off(theme) or self._is_aside
        return Caller(
            theme=theme, session_id=self.session.id, marks=self._context, off_record=off, refusal=refusal,
            ancestors=partial(self._home.continued, self.session.id, self.session.lineage), reads_files=True,
        )  # fmt: skip

    def why_no_recall(self, query: str) -> str:
        """Why nothing is recalled before this message; empty when memories are."""
        return self._home.capture.why_no_recall(query, self.session.agent_context)

    def late_switch(self) -> str:
        """The message that took the session off the record when its turn was over; once, empty when there is none."""
        return self._home.off_record.late_switch(self.session.marks(self.session.theme()))

    def go_on(self, session_id: Any, parent_session_id: Any, *, anew: bool, reason: str = "") -> None:
        """Continue under another session id. Unless it begins `anew`, it goes on with the transcript so far."""
        session_id, before = str(session_id or ""), str(parent_session_id or self.session.id)
        if not session_id or session_id == self.session.id:
            return
        theme, resumed = self.session.theme(), reason == "resume"
        continues = not (anew or resumed)
        if not continues:
            self.leave()
            self.replay.change()
            self._turns.withdrawn = frozenset()
        off = continues and self.session.is_off(theme)
        # Hosts begin a session after the turns in their queue, so its first turn may be open already.
        opened_off = anew and self._turns.current.is_open and bool(off_record.switch(self._turns.current.question))
        if off or opened_off:
            # First of all: a hook on another thread may ask for the new session at once.
            unsaid = [turn_mark(session_id)] if self._home.off_record.is_silenced([self.session.id]) else []
            self._home.off_record.change([*self.session.marks(theme, session_id), *unsaid], marked=True)
        if continues:
            self._home.outages.go_on(theme, self.session.id, session_id)
        self.session.follow(session_id, self.session.lineage.after(before, new=anew, reason=reason), resumed=resumed)

    def open_turn(self, message: Any = "", author_id: str = "", *, began: datetime | None = None) -> str:
        """Begin a turn, which may switch the session off or on the record. Returns its theme."""
        theme, began, marks = self.session.theme(), began or now(), self._home.off_record
        switched = off_record.switch(message)
        # What is said now holds, also when the host's record of the session before can only be read later.
        self._is_carried = self._is_carried or switched is not None
        self._carry()
        self.replay.note_said(opened=True)
        if self._settings.off_record:
            # A process without this setting may continue the session, and would store it from its transcript.
            switched = True
        if switched is not None:
            self.replay.end_silence()
            marks.change(self.session.marks(theme), marked=switched)
            marks.change([turn_mark(self.session.id)], marked=False)
        off = off_record.unrecorded(message) or self.session.is_off(theme)
        author_id, unsaid = author_id or self._author_now(), off and marks.is_silenced([self.session.id])
        with self._home.turn_lock:
            turn = Turn(str(message), author_id, theme, self.session.id, off_record=off, unsaid=unsaid, began=began)
            self._turns.open(turn, self._home.recent_turns.note_opened(theme, self.session.id, turn))
        return theme

    def take_turn(
        self, user: Any, assistant: Any, session_id: str = "", author_id: str = "", record: TurnRecord = NOT_RECORDED
    ) -> None:
        """Store a turn that is to be kept and is not stored by a replay."""
        theme, session, carried = self.session.theme(), session_id or self.session.id, self._carry()
        question, turns = opening(str(user)), self._turns
        answer, corrections = recorded_answer(record.answer or text_of(assistant)), record.corrections
        if session == self.session.id:  # It may have been opened before the host took up the session.
            self.replay.note_said()
        with self._home.turn_lock:
            noted = self._home.recent_turns.taken(theme, session)
        last = noted[-1] if noted else None
        self._retract_last(theme, session, question, record, noted)
        with self._home.turn_lock:
            speaker, saves = author_id or turns.author(question), turns.saves(question)
            off = turns.hand_over(question)
            passed = interrupted(turns.passed, record, self._settings.trusted_tools)
            missed = sum(len(found.corrections) for found in passed)
            unheard = self._home.recent_turns.unheard(theme, session, record.earlier, record.late, missed=missed)
        self._home.off_record.silence(session, *(recorded_answer(found.answer) for found in passed if found.unsaid))
        if turns.passed_as:
            left = withdrawal.times(turns.passed_as, record.before or (), self.session.judge)
            self._home.accept(withdrawal.of_one(turns.passed_as, left, **self.session.origin(theme, session)))
        unrecorded = off is None and off_record.unrecorded(question)  # One host tells those with a picture only now.
        late = [question, *corrections] if unrecorded else corrections
        for switched in [*filter(off_record.switch, late), *filter(off_record.silences, unheard)]:
            self._home.off_record.switch_late(self.session.id, self.session.marks(theme), switched)
        off = (unrecorded or self.session.is_off(theme)) if off is None else off
        silenced = any(map(off_record.silences, [*corrections, *unheard]))
        off = off or silenced or carried
        for event in () if off else attribution.events(record.saved, saves, **self.session.origin(theme, session_id)):
            self._home.accept(event)
        if question == turns.withdrawn_question:
            turns.withdrawn_question = None
            return
        if off:
            self._leave_out(session, question, answer, silenced=silenced)
            return
        whole = with_corrections(str(user), unheard, record) if self.session.identity.has_one_author else question
        sides = self.session.judge(whole, answer, speaker or "", kind=record.kind)
        with self._home.turn_lock:
            self._store_passed(theme, session, passed, last)
            self._home.recent_turns.note_taken(theme, session, Taken(question, sides, record.place))
            self._store(question, self._taken(theme, session, sides, speaker, record.tools))

    def _store(self, question: str, taken: TurnTaken) -> None:
        """Store a turn that was handed over, unless a replay did. The caller holds `turn_lock`."""
        current = self._turns.current
        current.is_taken = current.is_taken or not current.is_open
        if current.replayed == (taken.session_id, taken.assistant):
            current.replayed = None
        elif (taken.user or taken.assistant) and not self._home.accept(taken):
            self._turns.refused.append(question)

    def _leave_out(self, session: str, question: str, answer: str, *, silenced: bool) -> None:
        """Note that a turn which was handed over is off the record; `silenced` by what was said while it ran."""
        self._turns.in_doubt.append((question, answer))
        self._turns.any_off_record = True
        if silenced or self._turns.unsaid or self._home.off_record.is_silenced([session]):
            self._home.off_record.silence(session, answer)

    def _carry(self) -> bool:
        """Take the session off the record if it goes on from one which was; whether it is found now.

        Tried again at the next hook while the host locks its record.
        """
        if self._is_carried:
            return False
        try:
            off = self._home.off_record.carry(
                self.session.id,
                lambda session: self.session.marks(self.session.theme(), session),
                of_chat=self.session.is_of_chat(),
            )
        except Unavailable:
            off = None
        self._is_carried = off is not None
        return bool(off)

    def leave(self) -> None:
        """Store what the session ends with and was not handed over, as its transcript has it: the session is over."""
        left, self.replay.unanswered = self.replay.unanswered, ()
        with self._home.turn_lock:
            for place, found in enumerate(left, 1):
                if found.turn.may_come and not found.turn.replayed:
                    found.turn.is_open = False
                    continued = place < len(left) and not found.answer
                    self._store_interrupted(found, found.turn.session_id, None, continued=continued)

    def _store_passed(self, theme: str, session: str, passed: Sequence[Interrupted], last: Taken | None) -> None:
        """Store the turns before this one that are never handed over, as the transcript has them, in their session."""
        for found in passed:
            said_in = found.turn.session_id if found.turn.session_id in self.session.lineage.ancestors else session
            if found.turn.theme == theme:
                self._store_interrupted(found, said_in, last, continued=not found.answer)

    def _store_interrupted(self, found: Interrupted, session: str, last: Taken | None, *, continued: bool) -> None:
        turn, asked, answer = found.turn, scrubber()(found.turn.question), recorded_answer(found.answer)
        sides = self.session.judge(asked, answer, turn.author_id, continued=continued)
        if any(sides) and not (found.off_record or self._turns.is_known(turn, sides, last)):
            turn.passed_as = sides
            taken = self._taken(turn.theme, session, sides, turn.author_id, found.tools)
            self._home.accept(replace(taken, at=turn.began))

    def _taken(self, theme: str, session: str, sides: Pair, author: str | None, tools: Sequence[str]) -> TurnTaken:
        metadata = self._home.author_in(theme, self.session.identity, author)
        metadata |= {"tools": list(tools)} if tools else {}
        parent, origin = self.session.lineage.parent_of(session), self.session.origin(theme, session)
        return TurnTaken(user=sides[0], assistant=sides[1], parent_session_id=parent, metadata=metadata, **origin)

    def _retract_last(
        self, theme: str, session: str, question: str, record: TurnRecord, noted: Sequence[Taken]
    ) -> None:
        """Withdraw the turns before this one in whose place its question is asked again. Others need not wait."""
        if not noted or self.session.identity.platform == "api_server":  # Its clients may send each question alone.
            return
        gone = withdrawal.asked_again(noted, question, record.before, self.session.judge)
        # A host may keep the first of them in its record. With the others there, it did not load all of its record.
        if gone and not self.replay.stand(session, gone[1:]):
            with self._home.turn_lock:
                self._home.accept(withdrawal.of_all(gone, **self.session.origin(theme, session)))
                if self._turns.current.replayed in [(session, turn.sides[1]) for turn in gone]:
                    self._turns.current.replayed = None  # A replay took it for this turn's.

    def change_entry(self, action: str, target: str, content: str, metadata: Mapping[str, Any]) -> None:
        """Mirror a change of the built-in memory. Raises BadArgument for an unknown action."""
        theme, save = self.session.theme(), attribution.save_id()
        known = {**metadata, "saves": [save], **self._context}
        self._turns.current.note_save(plain_id(str(known.get("tool_call_id") or "")), save)
        origin = self.session.origin(theme, str(known.get("session_id") or ""))
        event = attribution.changed(action, target, content or "", known, origin)
        why_not = self._home.capture.why_no_entry(content or "", self.session.identity.source(self._speaker()))
        self._home.change_entry(event, stored=not (why_not or self.session.is_off(theme) or self._is_aside))

    def delegate(self, task: str, result: str, child_session_id: str) -> None:
        """Store a task for a child agent and its result, where the parent's turns are stored.

        A child may return long after it was sent, so none is stored once something was said off the record.
        """
        contexts, result = self._settings.write_contexts, result if is_answer(text_of(result)) else ""
        if not (task or result) or self.session.agent_context not in contexts or self._turns.any_off_record:
            return
        theme, source = self.session.theme(), self.session.identity.source(self._speaker())
        if not self.session.is_off(theme) and self._home.capture.delegates(task, result, source):
            task, result = map(self._home.capture.masked, (task, result))
            event = Delegated(task=task, result=result, child_session_id=child_session_id, **self.session.origin(theme))
            self._home.accept(event)

    def _speaker(self) -> str:
        """The id of who wrote the message that is answered now."""
        return self._turns.current.author_id or self._author_now()

    def _author_now(self) -> str:
        return author_now(self.session.identity.user_id, self.session.identity.only_author)

    @property
    def _context(self) -> dict[str, str]:
        """What an entry says of the job that writes it; nothing where a person talks."""
        return {} if self.session.primary else {"context": self.session.agent_context}

    @property
    def _is_aside(self) -> bool:
        """Whether the message that is answered now is off the record by itself."""
        return self._turns.current.is_open and off_record.aside(self._turns.current.question)
