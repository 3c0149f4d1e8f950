"""Re-ranking server for tests: `rerank_server.py KIND`. It answers and refuses as the documentation of its kind says.

It scores a text by the words that it shares with the question, twice as many for each `!` in it. It prints its address
as the first line. A line on stdin is a mode, `well`, `hang`, `nan`, `400`, `422` or `503`, and is answered by the
number of texts in each request since the last line. It ends when stdin closes.
"""

from __future__ import annotations

import json
import math
import re
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "rerank-key"


@dataclass(frozen=True)
class Kind:
    """What a server takes: paths, the field with the texts, whether it wants a model and a key, most texts at once."""

    paths: tuple[str, ...]
    texts: str = "documents"
    model: bool = False
    key: bool = False
    texts_max: int = 1000
    logits: bool = False


KINDS = {
    "tei": Kind(("/rerank",), texts="texts", texts_max=32),
    "vllm": Kind(("/rerank", "/v1/rerank", "/v2/rerank"), model=True),
    "llama.cpp": Kind(("/rerank", "/reranking", "/v1/rerank", "/v1/reranking"), logits=True),
    "infinity": Kind(("/rerank",), model=True),
    "jina": Kind(("/v1/rerank",), model=True, key=True),
    "cohere": Kind(("/v2/rerank",), model=True, key=True),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kind: Kind
    mode = "well"
    sizes: list[int]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        while self.mode == "hang":
            time.sleep(0.02)
        status, answer = self.answer(asked)
        payload = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def answer(self, asked: dict[str, Any]) -> tuple[int, Any]:
        kind = self.kind
        if self.path not in kind.paths:
            return 404, {"detail": "Not Found"}
        if kind.key and self.headers["Authorization"] != f"Bearer {KEY}":
            return 401, {"message": "invalid api token"}
        if self.mode in ("400", "422", "503"):
            return int(self.mode), {"error": "trouble"}
        texts = asked.get(kind.texts)
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            return 422, {"error": f"missing field `{kind.texts}`"}
        if kind.model and not asked.get("model"):
            return 422, {"detail": "model: field required"}
        type(self).sizes.append(len(texts))
        if len(texts) > kind.texts_max:
            return 422, {"error": f"batch size {len(texts)} > maximum allowed batch size {kind.texts_max}"}
        scores = [self.score(asked["query"], text) for text in texts]
        order = sorted(range(len(texts)), key=lambda place: -scores[place])
        if kind.texts == "texts":
            return 200, [{"index": place, "score": scores[place]} for place in order]
        results = [{"index": place, "relevance_score": scores[place]} for place in order]
        return 200, {"results": results[: asked.get("top_n") or len(texts)]}

    def score(self, query: str, text: str) -> float:
        if self.mode == "nan":
            return math.nan
        shared = len(set(re.findall(r"\w+", query.lower())) & set(re.findall(r"\w+", text.lower())))
        worth = shared * 2.0 ** text.count("!")
        return worth - 5 if self.kind.logits else worth / (worth + 1)

    def log_message(self, *args: object) -> None:
        """Print nothing."""


def main(kind: str) -> None:
    Handler.kind, Handler.sizes = KINDS[kind], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    for line in sys.stdin:
        Handler.mode = line.strip()
        sizes, Handler.sizes = Handler.sizes, []
        print(json.dumps(sizes), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
