"""The models of an Ollama server on this machine, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hermes_memory_pgvector.embedding.discovery import OLLAMA, ollama_models, ollama_url


class Tags:
    """Answers `/api/tags` with `status` and `body`."""

    def __init__(self) -> None:
        self.status, self.body = 200, b'{"models": []}'

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                handler.send_response(self.status if handler.path.endswith("/api/tags") else 404)
                handler.end_headers()
                handler.wfile.write(self.body)

            def log_message(handler, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def has(self, *names: str) -> None:
        self.body = json.dumps({"models": [{"name": name} for name in names]}).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def tags() -> Iterator[Tags]:
    made = Tags()
    yield made
    made.close()


def test_embedding_models_come_first_under_their_stored_names(tags: Tags) -> None:
    tags.has("llama3:8b", "nomic-embed-text:latest", "granite-embedding:30m", "qwen3:4b", "bge-m3:latest")
    assert ollama_models(tags.url, 2) == [
        "nomic-embed-text", "granite-embedding:30m", "bge-m3", "llama3:8b", "qwen3:4b",
    ]  # fmt: skip


def test_an_ollama_without_models_is_found(tags: Tags) -> None:
    assert ollama_models(tags.url, 2) == []


@pytest.mark.parametrize("body", [b"", b"[]", b'{"models": 3}', b'{"models": [{}]}', b"x" * (2 << 20)])
def test_a_server_with_another_answer_is_not_taken_for_ollama(tags: Tags, body: bytes) -> None:
    tags.body = body
    assert ollama_models(tags.url, 2) is None


def test_a_failing_or_missing_server_is_not_taken_for_ollama(tags: Tags) -> None:
    tags.status = 500
    assert ollama_models(tags.url, 2) is None
    assert ollama_models("http://127.0.0.1:9", 2) is None


def test_an_ollama_elsewhere_is_reached_through_the_proxy_of_the_environment(
    tags: Tags, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags.has("nomic-embed-text")
    for name in ("no_proxy", "NO_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", tags.url)
    assert ollama_models("http://ollama.invalid:11434", 2) == ["nomic-embed-text"]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert ollama_models(tags.url, 2) == ["nomic-embed-text"]


@pytest.mark.parametrize(
    ("named", "address"),
    [
        ("", OLLAMA),
        ("0.0.0.0", OLLAMA),
        ("0.0.0.0:12345", "http://127.0.0.1:12345"),
        ("gpu.lan", "http://gpu.lan:11434"),
        ("https://gpu.lan:443/", "https://gpu.lan"),
        ("http://[::1", OLLAMA),
    ],
)
def test_the_address_comes_from_the_variable_of_ollama(
    monkeypatch: pytest.MonkeyPatch, named: str, address: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", named)
    assert ollama_url() == address
