"""MCP clients as processes: the official SDK, of version 1 or 2, drives a server over stdio or HTTP."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mcprig.driver import drive
from waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).with_name("driver.py")
# Drivers with the SDK of the tests are forks of a process that has loaded it, which takes most of the time of a client.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["mcp", "mcp.client.stdio", "mcp.client.streamable_http", "httpx2"])


@dataclass(frozen=True)
class Sdk:
    """An environment with this package and a version of the SDK."""

    python: Path

    @property
    def program(self) -> str:
        return str(self.python.with_name("hermes-pgvector"))


@cache
def sdk(major: int) -> Sdk:
    """The environment with version 1 of the SDK, or that of the tests, which has the newest version 2."""
    if major == 2:
        return Sdk(Path(sys.executable))
    made = subprocess.run([ROOT / "scripts" / "environment", "mcp-1"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return Sdk(Path(made.stdout.strip()))


class Client:
    """A client that is connected to a server. `how` is as in the driver."""

    def __init__(self, sdk: Sdk, era: str, **how: Any) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._requests, self._results = ours.makefile("w"), ours.makefile("r")
            self._driver = _started(sdk, theirs)
        self._send({"era": era, **how})
        connected = self._receive()
        assert connected == "connected", connected

    @property
    def servers(self) -> list[int]:
        """The processes that the client started."""
        return children(self._driver.pid)

    def request(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of the session and return its result, or what it raised."""
        self.begin(method, *arguments)
        return self.result()

    def begin(self, method: str, *arguments: Any) -> None:
        self._send([method, *arguments])

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = self._receive()
        return found

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a tool."""
        result = self.request("call_tool", tool, arguments)
        assert not result.get("isError"), result
        answer: dict[str, Any] = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == answer
        return answer

    def refused(self, tool: str, **arguments: Any) -> str:
        """The error that a tool answers."""
        result = self.request("call_tool", tool, arguments)
        assert result["isError"], result
        text: str = result["content"][0]["text"]
        return text

    def close(self) -> int:
        """End the client as its program would. Returns its exit code."""
        self._requests.close()
        self._results.close()
        return self._ended()

    def kill(self) -> None:
        self._driver.kill()
        self._ended()
        self._requests.close()
        self._results.close()

    def _ended(self) -> int:
        if isinstance(self._driver, subprocess.Popen):
            return self._driver.wait(30)
        self._driver.join(30)
        assert self._driver.exitcode is not None, "the client did not end within 30 s"
        return self._driver.exitcode

    def _send(self, value: Any) -> None:
        print(json.dumps(value), file=self._requests, flush=True)

    def _receive(self) -> Any:
        line = self._results.readline()
        assert line, f"the client ended with code {self._ended()}"
        return json.loads(line)


def _started(sdk: Sdk, connection: socket.socket) -> Any:
    """Start a driver, which is asked over the other end of a connection."""
    if sdk.python != Path(sys.executable):
        number = connection.fileno()
        return subprocess.Popen([sdk.python, DRIVER, str(number)], pass_fds=[number])
    driver = _FORKS.Process(target=drive, args=(connection,))
    driver.start()
    return driver


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A process that has ended and that nobody has waited for.
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


def wait_until_gone(pid: int) -> None:
    wait_for(lambda: gone(pid), 20)
