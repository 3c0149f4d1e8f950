"""`hermes gateway run` with its API server on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from hostrig.forks import Start

START_S_MAX = 90
STOP_S_MAX = 30
# A host refuses keys that look weak.
KEY = "b7c1f0a94d2e4c58a36f9d71e2085b4c"


class Gateway:
    """Use it as a context manager: it is killed at the end, whatever happens.

    With `warms_up` the host loads its agents in a thread after it has reported that it is healthy. A request that
    arrives meanwhile can meet partly loaded modules, with or without a memory provider, so `__enter__` waits for it.
    """

    def __init__(
        self, program: Path, folder: Path, environment: Mapping[str, str], home: Path, *, warms_up: bool, start: Start
    ) -> None:
        self._port = _free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._log = folder / f"gateway-{self._port}.log"
        self._environment = {
            **environment, "API_SERVER_ENABLED": "true", "API_SERVER_KEY": KEY, "API_SERVER_HOST": "127.0.0.1",
            "API_SERVER_PORT": str(self._port),
        }  # fmt: skip
        self._command = [program, "gateway", "run"]
        self._folder, self._logs, self._warms_up, self._start = folder, home / "logs", warms_up, start
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Gateway:
        before = self._times_warmed_up()
        with self._log.open("ab") as log:
            self.process = self._start(
                self._command, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            self._wait_until_healthy()
            if self._warms_up:
                self._wait_until_warm(before)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            error.add_note(f"The gateway said at last:\n{self.said[-4000:]}")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    @property
    def said(self) -> str:
        """The output of the gateway."""
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, prompt: str, *, key: str = "", session: str = "", **more: Any) -> str:
        """One chat completion under a session key (`X-Hermes-Session-Key`); the text of the answer."""
        document = self.complete([{"role": "user", "content": prompt}], key=key, session=session, **more)
        answer: str = document["choices"][0]["message"]["content"]
        return answer

    def complete(
        self, messages: list[dict[str, Any]], *, key: str = "", session: str = "", timeout_s: float = 90, **more: Any
    ) -> dict[str, Any]:
        """POST /v1/chat/completions. Raises urllib.error.HTTPError."""
        body = {"model": "hermes-agent", "messages": messages, **more}
        with self.post("/v1/chat/completions", body, key=key, session=session, timeout_s=timeout_s) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def stream(self, prompt: str, *, key: str = "", session: str = "", timeout_s: float = 90) -> str:
        """The same as `ask`, streamed; the text put together."""
        body = {"model": "hermes-agent", "messages": [{"role": "user", "content": prompt}], "stream": True}
        told = []
        with self.post("/v1/chat/completions", body, key=key, session=session, timeout_s=timeout_s) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:]).get("choices", ()):
                        told.append(choice.get("delta", {}).get("content") or "")
        return "".join(told)

    def post(self, path: str, body: Mapping[str, Any], *, key: str = "", session: str = "", timeout_s: float) -> Any:
        """The open answer to a request."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        if key:
            headers["X-Hermes-Session-Key"] = key
        if session:
            headers["X-Hermes-Session-Id"] = session
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        return urllib.request.urlopen(request, timeout=timeout_s)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait until it has ended; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(STOP_S_MAX)

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the gateway ended with {self.process.returncode}")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise AssertionError(f"the gateway was not healthy within {START_S_MAX} s")

    def _wait_until_warm(self, before: int) -> None:
        deadline = time.monotonic() + START_S_MAX
        while self._times_warmed_up() == before:
            if time.monotonic() > deadline:
                raise AssertionError(f"the gateway did not log within {START_S_MAX} s that it has warmed up")
            time.sleep(0.1)

    def _times_warmed_up(self) -> int:
        """With success or without: the first request loads what is missing then."""
        logged = "".join(path.read_text(errors="replace") for path in sorted(self._logs.rglob("agent.log*")))
        return logged.count("machinery warmed") + logged.count("warm-up failed")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
