"""Embedding server with a cache on disk: `embedding_server.py e5|minilm CACHE`.

It serves OpenAI's API on loopback, and prints its address as the first line. The cache holds vectors by the SHA-256 of
their texts. `/768/v1` pads the vectors with zeros to 768 dimensions, which does not change cosines. The server ends
when stdin closes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from evaluation.vector_cache import Encode, VectorCache


def e5() -> Encode:
    """multilingual-e5-small. The prefix of a text says whether it is a query or a passage."""
    from hermes_memory_pgvector.embedding.bundled.e5 import E5

    model = E5()

    def encode(text: str) -> list[float]:
        if text.startswith("query: "):
            return model.query(text.removeprefix("query: ")).tolist()
        return model.passage(text.removeprefix("passage: ")).tolist()

    return encode


def minilm() -> Encode:
    """all-MiniLM-L6-v2."""
    from hermes_memory_pgvector.embedding.bundled.minilm import MiniLM

    model = MiniLM()
    return lambda text: model.vector(model.tokens(text)).tolist()


def handler(cache: VectorCache) -> type[BaseHTTPRequestHandler]:
    """Serves OpenAI's `/v1/embeddings` and `/768/v1/embeddings`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            length = int(self.path.split("/")[1]) if self.path.split("/")[1].isdigit() else 0
            vectors = [cache.vector(text) for text in ([given] if isinstance(given, str) else given)]
            data = [
                {"index": index, "embedding": vector + [0.0] * (length - len(vector))}
                for index, vector in enumerate(vectors)
            ]
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            # A client that timed out retries; the vectors are in the cache by then.
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    model, path = sys.argv[1:]
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(VectorCache(path, {"e5": e5, "minilm": minilm}[model]())))
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    # stdin closes when the parent process ends.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
