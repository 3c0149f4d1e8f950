"""Questions in the terminal: plain lines, which work in every terminal and in a pipe."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence

from ...errors import SettingsError
from ..console import Console

ANSWERS_MAX = 100


class Prompts:
    """Asks questions; Enter takes the default. The end of the input raises KeyboardInterrupt, as Ctrl-C does.

    Raises SettingsError instead of asking for more than `ANSWERS_MAX` lines.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._answers = 0

    def choose(self, question: str, options: Sequence[tuple[str, str]], default: int) -> int:
        """The index of the chosen option; each option is a name and a remark."""
        self._console.say(question)
        for number, (name, remark) in enumerate(options, 1):
            self._console.say(f"  {number}  {name}{f': {remark}' if remark else ''}")
        while True:
            given = self._line(f"Number [{default + 1}]: ")
            if not given:
                return default
            if given.isascii() and given.isdecimal() and 1 <= int(given) <= len(options):
                return int(given) - 1
            self._console.say(f"type a number from 1 to {len(options)}")

    def ask(self, question: str, default: str = "", *, shown: str = "") -> str:
        """A line of text; `shown` is printed in place of a secret default."""
        self._console.say(question)
        return self._line(f"[{shown or default}]: " if default else ": ") or default

    def hidden(self, question: str) -> str:
        """A line that is not echoed."""
        self._console.say(f"{question} (input is hidden)")
        if not sys.stdin.isatty():
            return self._line(": ")
        try:
            return getpass.getpass(": ").strip()
        except EOFError:
            raise KeyboardInterrupt from None

    def confirm(self, question: str, *, default: bool = True) -> bool:
        """Yes or no."""
        while True:
            given = self._line(f"{question} [{'Y/n' if default else 'y/N'}]: ").lower()
            if given in ("", "y", "yes", "n", "no"):
                return given in ("y", "yes") if given else default

    def _line(self, prompt: str) -> str:
        self._answers += 1
        if self._answers > ANSWERS_MAX:
            raise SettingsError(f"gave up after {ANSWERS_MAX} answers; nothing is changed")
        try:
            return input(prompt.encode("ascii", "replace").decode()).strip()
        except EOFError:
            raise KeyboardInterrupt from None
