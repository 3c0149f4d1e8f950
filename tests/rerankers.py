"""Starts server processes of rerank_server.py."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Server:
    """A server process of some kind; `tell` sets its mode and returns the sizes of the requests before."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        self._process, self.url = process, process.stdout.readline().strip()

    def tell(self, mode: str) -> list[int]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{mode}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())  # type: ignore[no-any-return]


@contextmanager
def serving(kind: str) -> Iterator[Server]:
    command = [sys.executable, "-P", str(Path(__file__).with_name("rerank_server.py")), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.kill()
