"""Questions to whoever sits at the terminal; plain lines, so that they work in any terminal and in a pipe."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence

from ..errors import SettingsError
from .console import Console

TRIES_MAX = 20


class Dialogue:
    """Asks, and takes Enter for the default. The end of the input counts as Ctrl-C: KeyboardInterrupt."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def choose(self, question: str, options: Sequence[tuple[str, str]], default: int) -> int:
        """The index of one of `options`, each a name and a remark."""
        self._console.say(question)
        for number, (name, remark) in enumerate(options, 1):
            self._console.say(f"  {number}  {name}{f': {remark}' if remark else ''}")
        for _ in range(TRIES_MAX):
            given = self._line(f"Number [{default + 1}]: ")
            if not given:
                return default
            if given.isascii() and given.isdecimal() and 1 <= int(given) <= len(options):
                return int(given) - 1
            self._console.say(f"type a number from 1 to {len(options)}")
        raise too_often()

    def ask(self, question: str, default: str = "", *, shown: str = "") -> str:
        """A line of text; `shown` stands for a default that must not be seen."""
        self._console.say(question)
        return self._line(f"[{shown or default}]: " if default else ": ") or default

    def hidden(self, question: str) -> str:
        """A line that is not shown while it is typed."""
        self._console.say(f"{question} (it is not shown)")
        if not sys.stdin.isatty():
            return self._line(": ")
        try:
            return getpass.getpass(": ").strip()
        except EOFError:
            raise KeyboardInterrupt from None

    def confirm(self, question: str, *, default: bool = True) -> bool:
        """Yes or no."""
        for _ in range(TRIES_MAX):
            given = self._line(f"{question} [{'Y/n' if default else 'y/N'}]: ").lower()
            if given in ("", "y", "yes", "n", "no"):
                return given in ("y", "yes") if given else default
        raise too_often()

    def _line(self, prompt: str) -> str:
        try:
            # A name that was typed with an invisible character around it would never be found again.
            return input(prompt.encode("ascii", "replace").decode()).strip()
        except EOFError:
            raise KeyboardInterrupt from None


def too_often() -> SettingsError:
    """What ends a question that was answered in vain."""
    return SettingsError(f"gave up after {TRIES_MAX} answers that did not do; nothing is changed")
