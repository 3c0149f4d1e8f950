"""Files dead letters again once the person or room that they belong to is known."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..model import Event
from ..outbox.dead_letters import DeadLetters
from ..settings import Settings


class Refiling:
    """Looks for dead letters with `reason` whose theme is among those of `known()`, and gives them to `accept`.

    `due` is for the writer thread, `run` for any.
    """

    def __init__(
        self,
        dead_letters: DeadLetters,
        settings: Settings,
        reason: str,
        known: Callable[[], frozenset[str]],
        accept: Callable[[Event], bool],
    ) -> None:
        self._letters, self._settings, self._reason = dead_letters, settings, reason
        self._known, self._accept = known, accept
        self._check_at = 0.0

    def due(self) -> bool:
        """Whether to call `run` now: some themes are known, and the last time is `adopt_interval_s` seconds ago."""
        if not self._known() or time.monotonic() < self._check_at:
            return False
        self._check_at = time.monotonic() + self._settings.adopt_interval_s
        return True

    def run(self) -> None:
        """Accept the dead letters of known themes, and delete them. Other processes may do the same."""
        themes = self._known()
        for letter in self._letters:
            event = letter.event if letter.reason == self._reason else None
            if event is not None and event.theme in themes and self._accept(event):
                # The writer may have made it a dead letter again already, for another reason.
                now = self._letters.read(letter.id)
                if now is not None and now.reason == self._reason:
                    self._letters.forget(letter.id)
