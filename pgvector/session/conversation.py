"""One conversation, which turns the hooks of a host into events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from ..files import mark_name
from ..hosts import state_db
from ..hosts.environment import author_now, recorded_answer, running, scrubber
from ..hosts.runtime_messages import opening
from ..hosts.tool_calls import TurnRecord, plain_id, savings, tools_by_answer
from ..hosts.transcript import exchanges, finished, is_compressed, text_of
from ..model import Caller, Delegated, SessionEnded, TurnTaken, Withdrawn, now
from . import attribution, off_record, withdrawal
from .home_context import HomeContext
from .interrupted import interrupted, with_corrections
from .outages import Notice
from .state import EVENT_TURNS_MAX, Lineage, Taken, Turn, Turns
from .themes import Identity, allowed
from .withdrawal import Pair

NOT_RECORDED = TurnRecord()
READ_ONLY_CONTEXTS = frozenset({"cron", "subagent", "flush"})


class Conversation:
    """The conversation of one provider object. Safe for any thread.

    Each public method is a hook of the host and raises BadArgument when a client names a reserved theme.
    `given_folder` is the working folder that the host named, if it did.
    """

    def __init__(
        self, home: HomeContext, identity: Identity, session_id: str, agent_context: str, given_folder: str = ""
    ) -> None:
        self.identity, self.session_id = home.located(identity, given_folder, session_id), session_id
        self._given_folder = given_folder
        self._home, self._settings, self._agent_context = home, home.settings, agent_context
        self._lineage, self._turns = Lineage(), Turns()

    @property
    def primary(self) -> bool:
        """Whether a person talks here, and not a job."""
        return self._agent_context not in READ_ONLY_CONTEXTS

    def theme(self) -> str | None:
        """The theme of this call; None when it is not in `allowed_themes`."""
        return theme if allowed(theme := self._theme(), self._settings.allowed_themes) else None

    def notices(self, message: str) -> list[Notice]:
        """What the person who wrote a message is told of the memory now. A job, or the host itself, is told nothing."""
        if not self.primary or self._home.capture.by_host(message, self._agent_context):
            return []
        theme, outages = self._theme(), self._home.outages
        permitted = allowed(theme, self._settings.allowed_themes)
        return (outages.notices if permitted else outages.refused)(theme, self.session_id)

    def caller(self, theme: str) -> Caller:
        """On whose behalf a tool runs that the agent calls now."""
        marks = {} if self.primary else {"context": self._agent_context}
        refusal = partial(self._home.capture.why_no_entry, source=self.identity.source(self._speaker()))
        off = self._is_off(theme) or self._is_aside
        return Caller(
            theme=theme, session_id=self.session_id, marks=marks, off_record=off, refusal=refusal,
            ancestors=partial(self._home.continued, self.session_id, self._lineage), reads_files=True,
        )  # fmt: skip

    def why_no_recall(self, query: str) -> str:
        """Why nothing is recalled before this message; empty when memories are."""
        return self._home.capture.why_no_recall(query, self._agent_context)

    def late_switch(self) -> str:
        """The message that took the session off the record when its turn was over; once, empty when there is none."""
        return self._home.late_switch(self._marks(self._theme()))

    def go_on(self, session_id: str, parent_session_id: str, *, anew: bool, reason: str = "") -> None:
        """Continue under another session id. Unless it begins `anew`, it goes on with the transcript so far."""
        before = parent_session_id or self.session_id
        if not session_id or session_id == self.session_id:
            return
        theme = self._theme()
        if reason == "resume" and not self._given_folder:
            # The host goes back to the folder of the session.
            self.identity = self._home.located(self.identity)
        continues = not anew and reason != "resume"
        off = continues and self._is_off(theme)
        # Hosts begin a session after the turns in their queue, so its first turn may be open already.
        opened_off = anew and self._turns.current.is_open and bool(off_record.switch(self._turns.current.question))
        if off or opened_off:
            # First of all: a hook on another thread may ask for the new session at once.
            self._home.off_record.change(self._marks(theme, session_id), marked=True)
        if continues:
            self._home.outages.go_on(theme, self.session_id, session_id)
        self.session_id, self._turns.withdrawn = session_id, frozenset()
        self._lineage = self._lineage.after(before, new=anew, reason=reason)

    def open_turn(self, message: Any = "", author_id: str = "", *, began: datetime | None = None) -> str:
        """Begin a turn, which may switch the session off or on the record. Returns its theme."""
        theme, began, switched = self._theme(), began or now(), off_record.switch(message)
        if self._settings.off_record:
            # A process without this setting may continue the session, and would store it from its transcript.
            switched = True
        if switched is not None:
            self._home.off_record.change(self._marks(theme), marked=switched)
        off = off_record.unrecorded(message) or self._is_off(theme)
        author_id = author_id or author_now(self.identity.user_id, self.identity.only_author)
        with self._home.turn_lock:
            turn = Turn(str(message), author_id, theme, self.session_id, off_record=off, began=began)
            self._turns.open(turn, self._home.note_opened(theme, self.session_id, turn))
        return theme

    def take_turn(
        self, user: Any, assistant: Any, session_id: str = "", author_id: str = "", record: TurnRecord = NOT_RECORDED
    ) -> None:
        """Store a turn that is to be kept and is not stored by a replay."""
        theme, session, question, turns = self._theme(), session_id or self.session_id, opening(str(user)), self._turns
        answer, corrections = recorded_answer(record.answer or text_of(assistant)), record.corrections
        last = self._home.last_turn(theme, session)
        self._retract_last(theme, session, question, record, last)
        with self._home.turn_lock:
            speaker, saves = author_id or turns.author(question), turns.saves(question)
            off = turns.hand_over(question)
            unheard = self._home.unheard(theme, session, record.earlier, record.late)
        if turns.passed_as:
            left = withdrawal.times(turns.passed_as, record.before or (), self._judge)
            self._home.accept(withdrawal.of_one(turns.passed_as, left, **self._origin(theme, session)))
        unrecorded = off is None and off_record.unrecorded(question)  # One host tells those with a picture only now.
        late = [question, *corrections] if unrecorded else corrections
        for switched in [*filter(off_record.switch, late), *filter(off_record.silences, unheard)]:
            self._home.switch_late(self._marks(theme), switched)
        off = (unrecorded or self._is_off(theme)) if off is None else off
        off = off or any(map(off_record.silences, [*corrections, *unheard]))
        for event in () if off else attribution.events(record.saved, saves, **self._origin(theme, session_id)):
            self._home.accept(event)
        if question == turns.withdrawn_question:
            turns.withdrawn_question = None
            return
        if off:
            turns.in_doubt.append((question, answer))
            return
        whole = with_corrections(str(user), unheard, record) if self.identity.has_one_author else question
        said, answered = self._judge(whole, answer, speaker or "", kind=record.kind)
        with self._home.turn_lock:
            self._store_interrupted(theme, session, record, last)
            self._home.note_turn(theme, session, Taken(question, (said, answered), record.place))
            turns.current.is_taken = turns.current.is_taken or not turns.current.is_open
            if turns.current.replayed == (session, answered):
                turns.current.replayed = None
            elif said or answered:
                taken = self._taken(theme, session, (said, answered), speaker, record.tools)
                if not self._home.accept(taken):
                    turns.refused.append(question)

    def _store_interrupted(self, theme: str, session: str, record: TurnRecord, last: Taken | None) -> None:
        """Store the turns before this one that are never handed over, as the transcript has them, in their session."""
        for turn, said, tools in interrupted(self._turns.passed, record, self._settings.trusted_tools):
            sides = self._judge(scrubber()(turn.question), recorded_answer(said), turn.author_id, continued=not said)
            if any(sides) and turn.theme == theme and not (turn.off_record or self._turns.is_known(turn, sides, last)):
                said_in = turn.session_id if turn.session_id in self._lineage.ancestors else session
                turn.passed_as = sides
                self._home.accept(replace(self._taken(theme, said_in, sides, turn.author_id, tools), at=turn.began))

    def _taken(self, theme: str, session: str, sides: Pair, author: str | None, tools: Sequence[str]) -> TurnTaken:
        metadata = self._home.author_in(theme, self.identity, author) | ({"tools": list(tools)} if tools else {})
        parent, origin = self._lineage.parent_of(session), self._origin(theme, session)
        return TurnTaken(user=sides[0], assistant=sides[1], parent_session_id=parent, metadata=metadata, **origin)

    def _retract_last(self, theme: str, session: str, question: str, record: TurnRecord, last: Taken | None) -> None:
        """Withdraw the turn before this one, when its question is asked again in its place. Others need not wait."""
        if last is None or self.identity.platform == "api_server":  # Its clients may send each question alone.
            return
        if withdrawal.is_asked_again(last, question, record.before, self._judge):
            with self._home.turn_lock:
                self._home.accept(withdrawal.of_one(last.sides, **self._origin(theme, session)))
                if self._turns.current.replayed == (session, last.sides[1]):  # A replay took it for this turn's.
                    self._turns.current.replayed = None

    def end(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Store the turns of a transcript that are missing. Hosts call this more than once a session.

        It may run before `take_turn` of the last turn, which waits on a thread of the host.
        """
        messages = self._home.own_messages(self.identity, self.session_id, self._lineage, messages)
        if self._is_off(theme := self._theme()):
            return
        with self._home.turn_lock:
            saves = self._turns.saves()
        for event in attribution.events(savings(messages, self._settings.trusted_tools), saves, **self._origin(theme)):
            self._home.accept(event)
        if self._stores_turns:
            self._replay(theme, off_record.recorded(messages, merged=True), messages)

    def checkpoint(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Store the turns that are about to be compressed and are missing, as `end`; False when they are refused.

        Turns that are not to be stored need none. The host leaves summaries out, so after an earlier compression an
        answer may follow the question of another turn: then only turns that were not handed over yet are taken.
        """
        if (theme := self.theme()) is None or not self._stores_turns or self._is_off(theme):
            return True
        messages = self._home.own_messages(self.identity, self.session_id, self._lineage, messages)
        record = state_db.messages(self._home.home, self.session_id)
        gaps = not record or is_compressed(record)
        pairs = off_record.recorded(finished(messages), gaps=gaps, merged=True)
        return self._replay(theme, [pair for pair in pairs if not gaps or self._turns.awaits(pair[0])], messages)

    def _replay(self, theme: str, recorded: Sequence[tuple[str, str]], messages: Sequence[Mapping[str, Any]]) -> bool:
        """Store those of the turns that are missing; False when they are refused."""
        with self._home.turn_lock:
            pairs = [pair for pair in recorded if self._turns.complete(pair)]
        # A transcript does not say who wrote in a room.
        turns = [self._judge(user, assistant) for user, assistant in pairs]
        # One host replays withdrawn turns when nothing was said since.
        answered = tuple(turn for turn in turns if turn[1] and turn not in self._turns.withdrawn)
        if not answered:
            return True
        made_by = tools_by_answer(messages, self._settings.trusted_tools)
        sides = zip(pairs, turns, strict=True)
        tools = {mark_name(said): made_by[answer] for (_, answer), (_, said) in sides if answer in made_by}
        ancestors = self._home.ancestors(self.session_id, self._lineage)
        with self._home.turn_lock:
            replay = SessionEnded(
                turns=answered[-EVENT_TURNS_MAX:], ancestors=ancestors, parent_session_id=self._lineage.parent,
                metadata={"tools": tools} if tools else {}, **self._origin(theme),
            )  # fmt: skip
            accepted = self._home.accept(replay)
            # After an interrupted question, the last pair that is left belongs to an older turn.
            if accepted and not self._turns.current.is_taken and turns[-1][1] and pairs[-1] == recorded[-1]:
                self._turns.current.replayed = (self.session_id, turns[-1][1])
            return accepted

    def take_back(self) -> None:
        """Withdraw the turns that were taken back, as the host's record says. May be called at any time, and again."""
        if not self.session_id:
            return
        # Turns that are said while the record is read are not in it.
        session, at, keep = self.session_id, now(), self._may_be_stored
        off = self._is_off(theme := self._theme())
        messages = state_db.messages(self._home.home, session)
        gone = withdrawal.withdrawn_messages(messages)
        if not gone:
            return
        self._turns.withdrawn = frozenset(withdrawal.stored(exchanges(gone), keep))
        self._turns.withdrawn_until = max(message["written"] for message in gone)
        if self._turns.current.is_open and withdrawal.is_withdrawn(self._turns.current, messages):
            self._turns.withdrawn_question = self._turns.current.question
        before = {session: state_db.messages(self._home.home, session) for session in self._lineage.compressed}
        # The turns of a session that the host has deleted cannot be counted.
        continued = {session: found for session, found in before.items() if found}
        turns, origin = withdrawal.withdrawn_turns(messages, keep, off=off), self._origin(theme, session)
        standing = withdrawal.remaining(turns, [*continued.values(), messages], keep)
        self._home.accept(Withdrawn(at=at, turns=turns, standing=standing, continued=tuple(continued), **origin))

    def change_entry(self, action: str, target: str, content: str, metadata: Mapping[str, Any]) -> None:
        """Mirror a change of the built-in memory. Raises BadArgument for an unknown action."""
        theme, save = self._theme(), attribution.save_id()
        known = {**metadata, "saves": [save], **({} if self.primary else {"context": self._agent_context})}
        self._turns.current.note_save(plain_id(str(known.get("tool_call_id") or "")), save)
        origin = self._origin(theme, str(known.get("session_id") or ""))
        event = attribution.changed(action, target, content or "", known, origin)
        why_not = self._home.capture.why_no_entry(content or "", self.identity.source(self._speaker()))
        self._home.change_entry(event, stored=not (why_not or self._is_off(theme) or self._is_aside))

    def delegate(self, task: str, result: str, child_session_id: str) -> None:
        """Store a task for a child agent and its result, where the parent's turns are stored.

        A child may return long after it was sent, so none is stored once something was said off the record.
        """
        contexts = self._settings.write_contexts
        if not (task or result) or self._agent_context not in contexts or self._turns.any_off_record:
            return
        theme, source = self._theme(), self.identity.source(self._speaker())
        if not self._is_off(theme) and self._home.capture.delegates(task, result, source):
            task, result = map(self._home.capture.masked, (task, result))
            event = Delegated(task=task, result=result, child_session_id=child_session_id, **self._origin(theme))
            self._home.accept(event)

    @property
    def _stores_turns(self) -> bool:
        return self._settings.sync_turns and self._agent_context in self._settings.write_contexts

    def _judge(self, user: Any, assistant: Any, author_id: str = "", **how: Any) -> Pair:
        """The sides of a turn on the record that are stored, the others empty."""
        source = self.identity.source(author_id)
        return self._home.capture.turn(user, assistant, source, context=self._agent_context, **how).sides

    def _may_be_stored(self, user: str, assistant: str) -> tuple[str, str]:
        """The sides of a recorded turn that may have been stored, the others empty."""
        return self._home.capture.possible(user, assistant, self.identity.source("")).sides

    def _speaker(self) -> str:
        """The id of who wrote the message that is answered now."""
        return self._turns.current.author_id or author_now(self.identity.user_id, self.identity.only_author)

    def _theme(self) -> str:
        return self._home.theme(self.identity, self._key())

    def _key(self) -> str:
        """The session key of the hook that runs now."""
        given = self.identity.gateway_session_key
        # Without a key from the gateway, the variable of the session key may be the environment's of the process.
        return (given and running("HERMES_SESSION_KEY")) or given

    def _is_off(self, theme: str) -> bool:
        return self._settings.off_record or any(mark in self._home.off_record for mark in self._marks(theme))

    @property
    def _is_aside(self) -> bool:
        """Whether the message that is answered now is off the record by itself."""
        return self._turns.current.is_open and off_record.aside(self._turns.current.question)

    def _marks(self, theme: str, session_id: str = "") -> list[str]:
        return self._home.off_record_marks(theme, self._key(), session_id or self.session_id)

    def _origin(self, theme: str, session_id: str = "") -> dict[str, Any]:
        return {"theme": theme, "home": self._home.home_id(), "session_id": session_id or self.session_id}
