"""The session that a conversation is in: who talks, its theme, the sessions before it, and what is stored of it."""

from __future__ import annotations

from typing import Any

from ..hosts import state_db
from ..hosts.environment import running
from ..text.keep import TERMINALS
from .home_context import HomeContext
from .identity import Identity
from .off_record_marks import session_marks
from .state import Lineage
from .themes import allowed
from .withdrawal import Pair

READ_ONLY_CONTEXTS = frozenset({"cron", "subagent", "flush"})


class SessionContext:
    """The session of one provider object when a hook runs. Safe for any thread.

    `id` is the host's, `lineage` are the sessions that it continues. `given_folder` is the working folder that the host
    named, if it did.
    """

    def __init__(
        self, home: HomeContext, identity: Identity, session_id: str, agent_context: str, given_folder: str
    ) -> None:
        self.identity, self.id, self.lineage = home.located(identity, given_folder, session_id), session_id, Lineage()
        self.agent_context = agent_context
        self._home, self._given_folder = home, given_folder

    @property
    def primary(self) -> bool:
        """Whether a person talks here, and not a job."""
        return self.agent_context not in READ_ONLY_CONTEXTS

    @property
    def stores_turns(self) -> bool:
        """Whether turns are stored here, unless they are off the record."""
        settings = self._home.settings
        return settings.sync_turns and self.agent_context in settings.write_contexts

    def theme(self) -> str:
        """The theme of the hook that runs now. Raises BadArgument for a reserved name."""
        return self._home.theme(self.identity, self._key())

    def allowed_theme(self) -> str | None:
        """As `theme`; None when it is not in `allowed_themes`."""
        return theme if allowed(theme := self.theme(), self._home.settings.allowed_themes) else None

    def is_off(self, theme: str, session_id: str = "") -> bool:
        """Whether the session, or another one with its key, is off the record."""
        marks = self.marks(theme, session_id)
        return self._home.settings.off_record or any(mark in self._home.off_record for mark in marks)

    def marks(self, theme: str, session_id: str = "") -> list[str]:
        """The marks of which any says that the session, or another one with its key, is off the record."""
        terminal = self.identity.platform in TERMINALS
        return session_marks(theme, self._key(), session_id or self.id, terminal=terminal)

    def is_of_chat(self) -> bool:
        """Whether a terminal goes on with the session of a chat or a client, whose turns are in the theme of that.

        Raises Unavailable when the host's record cannot be read now.
        """
        if self.identity.platform not in TERMINALS or self.identity.gateway_session_key:
            return False
        sessions = (*self._home.continued(self.id, self.lineage), self.id)
        return any(state_db.origin(self._home.home, session) for session in sessions)

    def origin(self, theme: str, session_id: str = "") -> dict[str, Any]:
        """Where an event of the session, or of another one with its key, comes from."""
        return {"theme": theme, "home": self._home.home_id(), "session_id": session_id or self.id}

    def judge(self, user: Any, assistant: Any, author_id: str = "", **how: Any) -> Pair:
        """The sides of a turn on the record that are stored, the others empty. `how` is as for `Capture.turn`."""
        source = self.identity.source(author_id)
        return self._home.capture.turn(user, assistant, source, context=self.agent_context, **how).sides

    def may_be_stored(self, user: str, assistant: str) -> Pair:
        """The sides of a recorded turn that may have been stored, the others empty."""
        return self._home.capture.possible(user, assistant, self.identity.source("")).sides

    def follow(self, session_id: str, lineage: Lineage, *, resumed: bool) -> None:
        """Go on as another session with the same key."""
        if resumed and not self._given_folder:
            # The host goes back to the folder of the session.
            self.identity = self._home.located(self.identity)
        self.id, self.lineage = session_id, lineage

    def _key(self) -> str:
        """The session key of the hook that runs now."""
        given = self.identity.gateway_session_key
        # Without a key from the gateway, the variable of the session key may be the environment's of the process.
        return (given and running("HERMES_SESSION_KEY")) or given
