"""A program in a pseudo-terminal, driven by typed text."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from hostrig.forks import Start

ROWS, COLUMNS = 50, 180
_ESCAPE = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[\[?][0-9;?<>=]*[ -/]*[@-~]|\x1b[@-Z\\-_()#=>78][0-9A-B]?")
_CURSOR_QUERY = b"\x1b[6n"


class Terminal:
    """Use it as a context manager: the program is ended with it, whatever happens."""

    def __init__(
        self, command: Sequence[str | Path], *, cwd: Path, environment: Mapping[str, str],
        start: Start = subprocess.Popen,
    ) -> None:  # fmt: skip
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        try:
            self.process = start(
                command, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=dict(environment), start_new_session=True
            )
        finally:
            os.close(slave)
        self._output = b""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            error.add_note(f"The terminal showed at last:\n{self.text[-4000:]}")
        with contextlib.suppress(ProcessLookupError):
            # The program may have children in its session.
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self._reader.join(5)
        os.close(self._master)

    @property
    def text(self) -> str:
        """All that was shown, without colours and cursor movements."""
        return _ESCAPE.sub("", self.output.decode(errors="replace")).replace("\r", "")

    @property
    def output(self) -> bytes:
        """All that the program has written."""
        with self._changed:
            return self._output

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._master, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the terminal and tell the program."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def wait(self, seen: str | Callable[[str], bool], *, since: int = 0, timeout_s: float = 60) -> str:
        """Wait until a text is shown, or what was shown satisfies a condition; returns what was shown since `since`."""
        deadline = time.monotonic() + timeout_s
        while True:
            shown = self.text[since:]
            if seen in shown if isinstance(seen, str) else seen(shown):
                return shown
            if time.monotonic() > deadline or (self.process.poll() is not None and not self._reader.is_alive()):
                raise AssertionError(f"the terminal did not show {seen!r} within {timeout_s:g} s")
            with self._changed:
                self._changed.wait(0.2)

    def interrupt(self, seen: str, *, attempts: int = 6) -> None:
        """Send SIGINT until a text is shown, as a person does who presses Ctrl-C.

        Python's `input` misses a signal that arrives between its last check for signals and its wait for a line.
        """
        for attempt in range(1, attempts + 1):
            self.process.send_signal(signal.SIGINT)
            try:
                self.wait(seen, timeout_s=10)
            except AssertionError:
                if attempt == attempts or self.process.poll() is not None:
                    raise
            else:
                return

    def ended(self, timeout_s: float = 30) -> int:
        """Wait until the program has ended by itself and return its exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the program did not end within {timeout_s:g} s") from None

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 65536)
            except OSError:
                break
            if not piece:
                break
            if _CURSOR_QUERY in piece:
                with contextlib.suppress(OSError):
                    os.write(self._master, b"\x1b[1;1R")
            with self._changed:
                self._output += piece
                self._changed.notify_all()
