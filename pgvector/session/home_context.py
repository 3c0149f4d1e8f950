"""What the conversations of a home share: settings, keys, marks, and where events go."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..hosts import state_db
from ..hosts.config import person_key
from ..hosts.environment import in_gateway, running, working_folder
from ..hosts.transcript import without_repeated
from ..model import Event
from ..settings import Settings
from ..text import personal_keys
from ..text.cleaning import clean
from ..text.keep import TERMINALS
from ..text.theme_names import reserved
from .capture import Capture
from .identity import Identity, keyed
from .off_record_marks import OffRecordMarks
from .outages import Outages
from .person_key import PersonKey
from .project import project_of
from .recent_turns import RecentTurns
from .state import ANCESTORS_MAX, Lineage
from .themes import ROOM, author_of, templated_theme, theme_of

log = logging.getLogger("hermes.pgvector")


class HomeContext:
    """The settings, keys and marks of a home, and where events go. Made once by the runtime; safe for any thread.

    `home_id` returns the id of the home, empty when the home cannot be written. `accept(event)` makes an event durable.
    `change_entry(event, stored=...)` does so for a change of a memory file; with `stored` false nothing new gets into
    the database. `turn_lock` orders the turns of conversations with their replays; who uses `recent_turns` holds it.
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
        self.off_record, self.recent_turns = OffRecordMarks(home, state), RecentTurns()
        self._warned = False
        self.turn_lock = threading.Lock()
        self.outages = Outages(state / "outages", settings.outage_after_s)

    def located(self, identity: Identity, given_folder: str = "", session_id: str = "") -> Identity:
        """The identity with the session key of its chat, or the project of its working folder, if settings ask for it.

        A gateway says nothing of the chat to an agent that only compresses a session: then its record is asked. Reads a
        few small files. Raises Unavailable when it cannot be read now.
        """
        if identity.platform in TERMINALS and session_id and not identity.gateway_session_key and in_gateway():
            recorded = state_db.origin(self.home, session_id)
            identity = replace(identity, **recorded) if "gateway_session_key" in recorded else identity
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
        """The sessions that a session continues, as the host has recorded and as its agent knows, the nearest last.

        Raises Unavailable when the record cannot be read now: a turn of one of them may be off the record.
        """
        recorded = state_db.ancestors(self.home, session_id, ANCESTORS_MAX)
        return tuple(dict.fromkeys((*recorded, *lineage.ancestors)))

    def continued(self, session_id: str, lineage: Lineage) -> tuple[str, ...]:
        """As `ancestors`, without sessions after which one began anew."""
        recorded = state_db.continued(self.home, session_id, ANCESTORS_MAX) or ()
        return tuple(map(clean, dict.fromkeys((*recorded, *lineage.ancestors))))

    def own_messages(
        self, identity: Identity, session_id: str, lineage: Lineage, messages: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        """The messages of a session without copies, and in a chat without what was said or delivered elsewhere."""
        messages = without_repeated(messages)
        if not identity.chat_id:
            return messages
        sessions = (*self.continued(session_id, lineage), session_id)
        return state_db.own(self.home, sessions, messages)

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
