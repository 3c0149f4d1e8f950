"""A conversation as one provider object sees it: whose it is, what it went on from, and what of it is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .errors import BadArgument
from .host import running_session_key
from .model import Add, Delegated, Event, Remove, Replace, SessionEnded, TurnTaken
from .runtime import Runtime
from .themes import Identity, allowed
from .transcript import exchanges, kept

log = logging.getLogger("hermes.pgvector")

READERS_ONLY = frozenset({"cron", "subagent", "flush"})
TRANSCRIPT_TURNS_MAX = 2000
ANCESTORS_MAX = 20


class Conversation:
    """Turns what the host tells of a session into events. Safe for any thread."""

    def __init__(self, runtime: Runtime, identity: Identity, session_id: str, context: str) -> None:
        self.runtime, self.identity, self.session_id = runtime, identity, session_id
        self._context = context
        self._ancestors: tuple[str, ...] = ()
        # Of the running turn: whether its `take_turn` is still to come, and where a replay took its answer before that.
        self._turn_open = False
        self._overtaken: tuple[str, str] | None = None

    @property
    def primary(self) -> bool:
        """Whether a person talks here, and not a job that only reads."""
        return self._context not in READERS_ONLY

    def theme(self) -> str | None:
        """The theme of this very call; None when the operator does not allow it. Raises BadArgument."""
        theme = self._theme()
        return theme if allowed(theme, self.runtime.settings.allowed_themes) else None

    def go_on(self, session_id: str, parent_session_id: str, *, anew: bool) -> None:
        """Go on under another session id. Unless it begins `anew`, the transcript of the old one goes on in it."""
        before = parent_session_id or self.session_id
        if session_id and session_id != self.session_id:
            self._ancestors = () if anew else (*self._ancestors, before)[-ANCESTORS_MAX:]
            self.session_id = session_id

    def open_turn(self) -> None:
        """A turn begins."""
        self._turn_open, self._overtaken = True, None

    def take_turn(self, user: Any, assistant: Any, session_id: str = "") -> None:
        """Keep a turn, if it is substantive and no replay has brought it already."""
        if not self._keeps_turns:
            return
        told, answered = kept(user, assistant, self.runtime.settings)
        with self.runtime.turn_lock:
            overtaken, self._overtaken, self._turn_open = self._overtaken, None, False
            if (told or answered) and overtaken != (session_id or self.session_id, answered):
                self._accept(
                    lambda common: TurnTaken(
                        user=told, assistant=answered, parent_session_id=self._parent_session_id, **common
                    ),
                    session_id,
                )

    def end(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Keep the turns that were missed. Hosts call this more than once a session and replay everything.

        It may run before the `take_turn` of the last turn, which waits on a thread of the host.
        """
        if not self._keeps_turns:
            return
        turns = [kept(user, assistant, self.runtime.settings) for user, assistant in exchanges(messages)]
        answered = tuple((user, assistant) for user, assistant in turns if assistant)[-TRANSCRIPT_TURNS_MAX:]
        if not answered:
            return
        with self.runtime.turn_lock:
            if self._turn_open and turns[-1][1]:
                self._overtaken = (self.session_id, turns[-1][1])
            self._accept(
                lambda common: SessionEnded(
                    turns=answered, ancestors=self._ancestors, parent_session_id=self._parent_session_id, **common
                )
            )

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
        """Keep what was given to a child agent and what came back."""
        if task or result:
            self._accept(
                lambda common: Delegated(task=task, result=result, child_session_id=child_session_id, **common)
            )

    @property
    def _keeps_turns(self) -> bool:
        return self.runtime.settings.sync_turns and self.primary

    @property
    def _parent_session_id(self) -> str:
        return self._ancestors[-1] if self._ancestors else ""

    def _theme(self) -> str:
        # Without a key from the gateway the variable may come from the environment of the process: then it is not read.
        key = running_session_key() if self.identity.gateway_session_key else None
        return self.runtime.theme(self.identity, key)

    def _accept(self, make: Callable[[dict[str, Any]], Event], session_id: str = "") -> None:
        common = {"theme": self._theme(), "home": self.runtime.home.id, "session_id": session_id or self.session_id}
        event = make(common)
        files = self.runtime.files
        accepted = files.change(event) if isinstance(event, Add | Replace | Remove) else self.runtime.accept(event)
        if not accepted:
            log.warning("the spool refuses events: it is full or cannot be written; run: hermes-pgvector doctor")
