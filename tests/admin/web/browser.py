"""Chromium without a window, driven through the pipes of its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest


class Browser:
    """A browser with one tab. Ends it when left."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            pytest.skip("chromium is missing: apt-get install chromium")
        read, self._write = os.pipe()
        answers, write = os.pipe()
        self._answers = os.fdopen(answers, "rb", buffering=0)
        options = (
            "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
            "--remote-debugging-pipe"
        )
        line = f'exec "$0" {options} --user-data-dir="$1" about:blank 3<&{read} 4>&{write}'
        self._process = subprocess.Popen(
            ["bash", "-c", line, program, str(folder)], pass_fds=(read, write),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read)
        os.close(write)
        self._left, self._number, self._session = b"", 0, ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(30)
        os.close(self._write)
        self._answers.close()

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._next(lambda found: found.get("id") == self._number)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self, wanted: Any) -> Any:
        while True:
            while b"\0" not in self._left:
                data = self._answers.read(1 << 16)
                assert data, "the browser ended"
                self._left += data
            message, _, self._left = self._left.partition(b"\0")
            found = json.loads(message)
            if wanted(found):
                return found

    def look(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Draw pages in this size and scheme from now on."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Load a page and all that belongs to it."""
        self.call("Page.navigate", url=url)
        self._next(lambda found: found.get("method") == "Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """What a script of the test finds in the page; the page's own rules do not hold for it."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self, path: Path) -> None:
        """Draw the whole page into a PNG."""
        drawn = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(drawn["data"]))
