"""An embedding endpoint on loopback: real HTTP, deterministic vectors, failures on demand."""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def vector(text: str, dimensions: int = 384) -> list[float]:
    """The unit vector of a hashed bag of words: texts that share words are similar."""
    numbers = [1e-3] * dimensions
    for word in re.findall(r"\w+", text.lower()):
        numbers[int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest()) % dimensions] += 1.0
    length = math.sqrt(sum(number * number for number in numbers))
    return [number / length for number in numbers]


class Endpoint:
    """Answers OpenAI's `/v1/embeddings` and Ollama's `/api/embed`. Change `status`, `dimensions`, … while it runs."""

    def __init__(self, dimensions: int = 384) -> None:
        self.dimensions = dimensions
        self.status = 200
        self.delay_s = self.delay_per_text_s = 0.0
        self.retry_after_s: int | None = None
        self.not_a_number = False
        self.drop_last = False
        self.requests = self.texts = self.waiting = 0
        self.released = threading.Event()
        self.released.set()
        self._open(0)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def _open(self, port: int) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        # Some tests close the connection in the middle of a request.
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def reopen(self) -> None:
        """Listen again, at the same address, after `close`."""
        self._open(self._server.server_port)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Leave requests unanswered while the block runs."""
        self.released.clear()
        try:
            yield
        finally:
            self.released.set()

    def _answer(self, texts: list[str]) -> dict[str, Any]:
        self.requests += 1
        self.texts += len(texts)
        time.sleep(self.delay_s + self.delay_per_text_s * len(texts))
        data = [{"index": n, "embedding": vector(text, self.dimensions)} for n, text in enumerate(texts)]
        if self.not_a_number:
            data[0]["embedding"][0] = math.nan
        return {"data": data[:-1] if self.drop_last else data}

    def _handler(endpoint) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.waiting += 1
                endpoint.released.wait(60)
                given = body["input"]
                answer = endpoint._answer([given] if isinstance(given, str) else given)
                if self.path == "/api/embed":
                    answer = {"embeddings": [row["embedding"] for row in answer["data"]]}
                payload = json.dumps(answer if endpoint.status == 200 else {"error": "trouble"}).encode()
                self.send_response(endpoint.status)
                if endpoint.status != 200 and endpoint.retry_after_s is not None:
                    self.send_header("Retry-After", str(endpoint.retry_after_s))
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler
