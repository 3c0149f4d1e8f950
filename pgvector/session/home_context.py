"""What the conversations of a home share: settings, keys, marks, and where events go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..files import LastingMarks
from ..hosts.config import person_key
from ..hosts.environment import working_folder
from ..model import Event
from ..settings import Settings
from .capture import Capture
from .outages import Outages
from .person_key import PersonKey
from .project import project_of
from .themes import Identity, author_of, templated_theme, theme_of

OFF_RECORD_MAX = 100_000


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
        self.off_record = LastingMarks(
            state / "off_record", OFF_RECORD_MAX, "that a session is off the record, or on it, and may store it"
        )
        self.turn_lock = threading.Lock()
        self.outages = Outages(state / "outages", settings.outage_after_s)

    def located(self, identity: Identity, given_folder: str = "") -> Identity:
        """The identity with the project of its working folder, if the settings ask for it. Reads a few small files."""
        if identity.gateway_session_key or "{project}" not in self.settings.theme_template:
            return identity
        return replace(identity, project=project_of(working_folder(identity.platform, given_folder)))

    def theme(self, identity: Identity, session_key: str | None) -> str:
        """The theme of a hook that runs now, as `theme_of`. Raises BadArgument for a reserved name."""
        if not identity.gateway_session_key:
            return templated_theme(identity, self.settings)
        aliases = self.settings.theme_aliases
        return self.person_key.name(lambda key: theme_of(identity, session_key, aliases=aliases, person_key=key))

    def author(self, platform: str, user_id: str) -> str:
        """The pseudonym of a person in a chat room."""
        return self.person_key.name(lambda key: author_of(platform, user_id, person_key=key))

    def abandon(self) -> None:
        """Renew the locks in a forked child, where the threads that held them do not exist."""
        self.turn_lock = threading.Lock()
        self.person_key.abandon()
        self.off_record.abandon()
        self.outages.abandon()
