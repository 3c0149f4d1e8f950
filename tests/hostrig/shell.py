"""An interactive shell in a pseudo-terminal, into which the commands of a page are typed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from hostrig.terminal import Terminal

COMMAND_S_MAX = 120
_JOB = re.compile(r"\[\d+\] (\d+)$", re.MULTILINE)
_PROMPT = re.compile(r"<ended (\d+)> $")


class Shell(Terminal):
    """Bash, as a user has it but for its prompt, which tells the exit code of the last command."""

    def __init__(self, cwd: Path, environment: Mapping[str, str]) -> None:
        self.environment = environment
        command = ["bash", "--noprofile", "--norc", "--noediting", "-i"]
        super().__init__(command, cwd=cwd, environment={**environment, "PS1": r"<ended $?> ", "PS2": ""})

    def __enter__(self) -> Shell:
        super().__enter__()
        self.wait(lambda shown: _PROMPT.search(shown) is not None)
        # So that a command is not found in its own output.
        self.run("stty -echo")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Each job has a process group of its own, in the session of the shell.
        for group in {os.tcgetpgrp(self._master), *map(int, _JOB.findall(self.text))}:
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(group) == self.process.pid:
                    os.killpg(group, signal.SIGKILL)
        super().__exit__(kind, error, at)

    def run(self, command: str, *answers: tuple[str, str], code: int | None = 0) -> str:
        """Type a command, and each answer after its question; returns what is shown until the next prompt.

        Raises AssertionError when it ends with another exit code than `code`, unless that is None.
        """
        since = asked = len(self.text)
        self.type(f"{command}\n")
        for question, typed in answers:
            self.wait(question, since=asked, timeout_s=COMMAND_S_MAX)
            asked = len(self.text)
            self.type(f"{typed}\n")
        shown = self.wait(lambda shown: _PROMPT.search(shown) is not None, since=since, timeout_s=COMMAND_S_MAX)
        ended = _PROMPT.search(shown)
        assert ended
        assert code in (None, int(ended[1])), f"{command}\n{shown}"
        return shown[: ended.start()]
