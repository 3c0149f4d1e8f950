"""Processes of a host that are forked from one that has loaded the libraries which each start of the host loads."""

from __future__ import annotations

import atexit
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

Start = Callable[..., subprocess.Popen[Any]]

# None that looks at the environment, as most of the hosts' own do: `tui_gateway.contracts` of host B has types alone.
MODULES = """
    aiohttp.web nemo_relay numpy openai.resources.chat pgvector.psycopg prompt_toolkit.shortcuts psycopg_pool requests
    rich.markdown ruamel.yaml snowballstemmer tui_gateway.contracts unittest.mock websockets
"""
# numpy would otherwise start threads, with which a process cannot be forked.
_ENVIRONMENT = {"LANG": "C.UTF-8", "PYDANTIC_DISABLE_PLUGINS": "__all__", "OPENBLAS_NUM_THREADS": "1"}
TITLE_BYTES_MAX = 4096
# The first answer comes when the modules are loaded.
ANSWER_S_MAX = 60
ERRORS_CHARS_MAX = 4000


class ForkServer:
    """The process that is forked. It ends with this one."""

    def __init__(self, python: Path, answer_s_max: float = ANSWER_S_MAX) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(answer_s_max)
        self._lock = threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the server
        program, room = Path(__file__).with_name("fork_server.py"), MODULES.ljust(TITLE_BYTES_MAX)
        with theirs:
            self.process = subprocess.Popen(
                [python, program, str(theirs.fileno()), room], pass_fds=[theirs.fileno()], env=_ENVIRONMENT,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
            )  # fmt: skip
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> Any:
        """The answer of the server. Raises AssertionError when it has ended, or does not answer in time."""
        answer, problem = b"", "it has ended"
        with self._lock:
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
                answer = self._socket.recv(64)
            except ConnectionError:
                pass
            except OSError as error:
                problem = repr(error)
            finally:
                if not answer:
                    # An answer that comes later would be taken for that of the next request.
                    self.process.kill()
            assert answer, f"the server of forks does not answer ({problem}); the end of its stderr:\n{self._shown()}"
        return json.loads(answer)

    def _shown(self) -> str:
        self.process.wait(10)
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-ERRORS_CHARS_MAX:]


@cache
def _servers(python: Path) -> Iterator[ForkServer]:
    """Two servers by turns: they iterate over sets of strings in different orders, as two starts of a program do."""
    return cycle([ForkServer(python), ForkServer(python)])


def start(python: Path, command: Sequence[str | Path], *, env: Mapping[str, str], **how: Any) -> subprocess.Popen[Any]:
    """Start a Python program of a host in a new session, as `subprocess.Popen` does."""
    # Python itself reads such variables when it starts.
    cold = sys.platform != "linux" or any(name.startswith("PYTHON") for name in env)
    if cold or command[0] == python:
        return subprocess.Popen(command, env=env, **how)
    return _Fork(next(_servers(python)), command, env=env, **how)


class _Fork(subprocess.Popen[Any]):
    """A program that the server forks, in a new session."""

    def __init__(self, server: ForkServer, command: Sequence[str | Path], **how: Any) -> None:
        self._server, self._polls = server, threading.Lock()
        super().__init__(command, **how)

    def _execute_child(self, command: Sequence[str | Path], *how: Any) -> None:
        folder, environment, pipes = how[4], how[5], how[9:15]
        program = {"command": [*map(str, command)], "folder": str(folder), "environment": dict(environment)}
        self.pid = self._server.ask(program, [pipes[0], pipes[3], pipes[5]])
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def poll(self) -> int | None:
        # The server forgets a process when it has told its exit code.
        with self._polls:
            if self.returncode is None:
                self.returncode = self._server.ask({"pid": self.pid})
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (timeout or 0)
        while self.poll() is None:
            if timeout is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.02)
        return self.returncode
