"""MCP clients as processes: the official SDK, of version 1 or 2, drives a server over stdio or HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).with_name("driver.py")


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
        self._driver = subprocess.Popen(
            [sdk.python, DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
        )
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
        self._driver.stdin.close()  # type: ignore[union-attr]
        return self._driver.wait(30)

    def kill(self) -> None:
        self._driver.kill()
        self._driver.wait(30)

    def _send(self, value: Any) -> None:
        self._driver.stdin.write(json.dumps(value) + "\n")  # type: ignore[union-attr]
        self._driver.stdin.flush()  # type: ignore[union-attr]

    def _receive(self) -> Any:
        line = self._driver.stdout.readline()  # type: ignore[union-attr]
        assert line, f"the client ended with code {self._driver.wait(10)}"
        return json.loads(line)


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
