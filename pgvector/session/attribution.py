"""Which entries an agent saved after it had read third parties."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable

from ..errors import BadArgument
from ..hosts.tool_calls import SAVING_CALLS_MAX, Saving
from ..model import Attributed, Event
from ..settings import Settings
from ..text.cleaning import clean
from ..text.masks import masked
from .themes import writable


class Attribution:
    """Tells of each such call of a conversation once, among the last SAVING_CALLS_MAX. Safe for any thread.

    `accept(event)` makes an event durable.
    """

    def __init__(self, settings: Settings, accept: Callable[[Event], bool]) -> None:
        self._settings, self._accept = settings, accept
        self._told: deque[Saving] = deque(maxlen=SAVING_CALLS_MAX)
        self._lock = threading.Lock()

    def note(self, saved: Iterable[Saving], *, theme: str, home: str, session_id: str) -> None:
        """Have the entries known as made with texts of third parties that these calls of a session saved."""
        with self._lock:
            fresh = [saving for saving in saved if saving not in self._told]
            self._told.extend(fresh)
        keys: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for saving in fresh:
            if named := self._theme(saving, theme):
                keys.setdefault((named, saving.tools), []).append(self._key(saving))
        for (named, tools), found in keys.items():
            made = {"tools": list(tools)}
            self._accept(Attributed(theme=named, home=home, session_id=session_id, keys=tuple(found), metadata=made))

    def _theme(self, saving: Saving, theme: str) -> str:
        """The theme of an entry; empty when the tool has refused it."""
        try:
            return writable(theme, saving.theme, self._settings) if saving.theme else theme
        except BadArgument:
            return ""

    def _key(self, saving: Saving) -> str:
        """The id of the call, or the SHA-256 of the text as the tools of this memory store it."""
        if not saving.text:
            return saving.call_id
        text = clean(saving.text).strip()
        text = masked(text) if self._settings.mask_secrets_in_entries else text
        return hashlib.sha256(text.encode()).hexdigest()
