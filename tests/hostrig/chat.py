"""An interactive session of a host in a pseudo-terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hostrig.forks import Start
from hostrig.model import ModelEndpoint
from hostrig.terminal import Terminal

QUIET_S = 0.7
READY_S_MAX = 60
# A host ends itself 30 s after it was told to, when something of its own hangs (host B's relay does on Python 3.12).
ENDED_S_MAX = 45
SAME_LINE_S_MAX = 5
_ERASE_LINE = "\x15"


class Chat(Terminal):
    """Type prompts and commands of the host; each waits until the host is idle again."""

    def __init__(
        self, command: Sequence[str | Path], cwd: Path, environment: Mapping[str, str], model: ModelEndpoint,
        start: Start,
    ) -> None:  # fmt: skip
        super().__init__(command, cwd=cwd, environment=environment, start=start)
        self._model = model

    def __enter__(self) -> Chat:
        super().__enter__()
        try:
            self.wait("❯", timeout_s=READY_S_MAX)
            self.settle()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def ask(self, prompt: str) -> str:
        """Send a prompt, wait until the model was asked and the host is idle; returns what was shown meanwhile."""
        before = len(self._model.requests)
        shown = self.command(prompt, settle=False)
        deadline = time.monotonic() + READY_S_MAX
        while len(self._model.requests) == before:
            if time.monotonic() > deadline:
                raise AssertionError(f"the model was not asked {prompt!r} within {READY_S_MAX} s")
            time.sleep(0.05)
        self.settle()
        return self.text[shown:]

    def command(self, line: str, *, settle: bool = True) -> int:
        """Send a line such as `/new`; returns where in the text its output begins."""
        # After /undo the host puts the prompt back on the line.
        self.type(_ERASE_LINE)
        before = len(self.text)
        self.type(line)
        # Nothing is drawn when the line is the one that it takes the place of.
        with suppress(AssertionError):
            self.wait(lambda shown: len(shown) > 0, since=before, timeout_s=SAME_LINE_S_MAX)
        # Text that arrives together with its line end counts as a paste.
        self.settle(0.3)
        self.type("\r")
        if settle:
            self.settle()
        return before

    def settle(self, quiet_s: float = QUIET_S) -> None:
        """Wait until nothing more is shown."""
        deadline = time.monotonic() + READY_S_MAX
        before, since = len(self.text), time.monotonic()
        while time.monotonic() - since < quiet_s:
            if time.monotonic() > deadline:
                raise AssertionError(f"the session was not idle within {READY_S_MAX} s")
            time.sleep(0.05)
            if len(self.text) != before:
                before, since = len(self.text), time.monotonic()

    def leave(self) -> int:
        """End the session as a user does; returns the exit code."""
        self.command("/exit", settle=False)
        return self.ended(ENDED_S_MAX)
