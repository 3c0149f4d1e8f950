"""What the conversations of one home share in a process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from ..files import Marks
from ..model import Event
from ..settings import Settings, person_key
from .person_key import PersonKey
from .themes import Identity, author_of, theme_of

OFF_RECORD_MAX = 1000


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
        self.person_key = PersonKey(state, person_key(home))
        self.off_record = Marks(state / "off_record", OFF_RECORD_MAX, "that a session is off the record, or on it")
        self.turn_lock = threading.Lock()

    def theme(self, identity: Identity, session_key: str | None) -> str:
        """The theme of a hook that runs now, as `theme_of`. Raises BadArgument for a reserved name."""
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
