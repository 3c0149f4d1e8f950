"""Embedding server for benchmarks: `embedding_server.py REQUEST_MS TEXT_MS DIMENSIONS [VECTORS.npy]`.

It serves OpenAI's `/v1/embeddings` on loopback and prints its address as the first line. An answer takes REQUEST_MS
plus TEXT_MS for each text; requests run in parallel. Texts that share words get similar vectors, so a graph index has
as much work as with a model. With a file, each text gets one of the vectors in it. A line on stdin with a mode of
`MODES` switches to it and is answered by the same line. The server ends when stdin closes.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from zlib import crc32

import numpy as np

BUCKETS = 8192
# down: connections are refused; hang: no answer; wrong_length: a number too few; other_model: half as many numbers.
HANG_S_MAX = 600.0
MODES = ("well", "down", "status_503", "hang", "wrong_length", "nan", "other_model")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: benchmarks kill clients."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    mode = "well"
    request_s = text_s = 0.0
    words: np.ndarray
    given: np.ndarray | None = None

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        started = time.monotonic()
        while self.mode == "hang":
            time.sleep(0.05)
            if self.mode != "hang" or time.monotonic() - started > HANG_S_MAX:
                self.close_connection = True
                return
        if self.mode == "down":
            self.close_connection = True
            return
        if self.mode == "status_503":
            self.wfile.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
            return
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        packed = asked.get("encoding_format") == "base64"
        data = [{"index": place, "embedding": self.vector(text, packed)} for place, text in enumerate(texts)]
        answer = json.dumps({"data": data}).encode()
        time.sleep(max(0.0, started + self.request_s + self.text_s * len(texts) - time.monotonic()))
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
        self.wfile.write(head.encode() + answer)

    def vector(self, text: str, packed: bool) -> str | list[float]:
        numbers = (
            made_from_words(text, self.words)
            if self.given is None
            else self.given[crc32(text.encode()) % len(self.given)]
        )
        if self.mode == "nan":
            numbers = np.full_like(numbers, np.nan)
        numbers = numbers[: {"wrong_length": -1, "other_model": len(numbers) // 2}.get(self.mode)]
        if packed:
            return base64.b64encode(numbers.astype("<f4").tobytes()).decode()
        return list(np.round(numbers.astype(float), 7).tolist())

    def log_message(self, *args: object) -> None:
        """Print nothing."""


def word_vectors(dimensions: int) -> np.ndarray:
    """A random vector for each bucket of words; the same in every run."""
    return np.random.default_rng(7).standard_normal((BUCKETS, dimensions), dtype=np.float32)


def made_from_words(text: str, words: np.ndarray) -> np.ndarray:
    """The unit vector of a text: the sum of the vectors of its words."""
    buckets = [crc32(word.encode()) % BUCKETS for word in re.findall(r"\w+", text.lower())]
    numbers = words[buckets or [0]].sum(axis=0)
    return numbers / np.linalg.norm(numbers)


def listen(port: int) -> Server:
    server = Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def main(request_ms: str, text_ms: str, dimensions: str, vectors: str = "") -> None:
    Handler.request_s, Handler.text_s = float(request_ms) / 1000, float(text_ms) / 1000
    Handler.given = np.load(vectors) if vectors else None
    Handler.words = word_vectors(int(dimensions))
    server = listen(0)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    for line in sys.stdin:
        before, Handler.mode = Handler.mode, line.strip()
        if Handler.mode == "down":
            server.shutdown()
            server.server_close()
        elif before == "down":
            server = listen(server.server_port)
        print(Handler.mode, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
