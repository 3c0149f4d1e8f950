"""Processes of a host that are forked from one that has loaded the libraries which each start of the host loads."""

from __future__ import annotations

import atexit
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
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


class _Server:
    """The process that is forked. It ends with this one."""

    def __init__(self, python: Path) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        program, room = Path(__file__).with_name("fork_server.py"), MODULES.ljust(TITLE_BYTES_MAX)
        with theirs:
            self._process = subprocess.Popen(
                [python, program, str(theirs.fileno()), room], pass_fds=[theirs.fileno()], env=_ENVIRONMENT,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait(10)

    def ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> Any:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            answer = self._socket.recv(64)
        assert answer, "the server of forks has ended"
        return json.loads(answer)


_server = cache(_Server)


def start(python: Path, command: Sequence[str | Path], *, env: Mapping[str, str], **how: Any) -> subprocess.Popen[Any]:
    """Start a Python program of a host in a new session, as `subprocess.Popen` does."""
    # Python itself reads such variables when it starts.
    cold = sys.platform != "linux" or any(name.startswith("PYTHON") for name in env)
    if cold or command[0] == python:
        return subprocess.Popen(command, env=env, **how)
    return _Fork(_server(python), command, env=env, **how)


class _Fork(subprocess.Popen[Any]):
    """A program that the server forks, in a new session."""

    def __init__(self, server: _Server, command: Sequence[str | Path], **how: Any) -> None:
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
