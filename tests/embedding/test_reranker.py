"""The re-ranker with a server process that answers as each kind of endpoint documents, and its pure parts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_server import KEY, KINDS
from rerankers import serving

from hermes_memory_pgvector.embedding import rerank_api
from hermes_memory_pgvector.embedding.factory import build_reranker
from hermes_memory_pgvector.errors import EmbedderMismatch, EmbedderUnavailable, SettingsError
from hermes_memory_pgvector.settings import Settings

QUERY = "which pump is loud"
TEXTS = ["nothing of it", "which pump is loud", "the pump is loud !", "pump"]
BY_WORTH = [2, 1, 3, 0]
# What a user writes as rerank_url for each kind.
PATHS = {"jina": "/v1", "cohere": "/v2/rerank"}


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    with ExitStack() as ending:

        def begin(kind: str, **changed: Any) -> Any:
            server = ending.enter_context(serving(kind))
            values = {"rerank_url": server.url + PATHS.get(kind, ""), "rerank_model": "m", "rerank_key_env": "THE_KEY"}
            reranker = build_reranker(Settings(**{**values, **changed}), {"THE_KEY": KEY})
            ending.callback(reranker.close)
            return server, reranker

        yield begin


def order(scores: list[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda place: -scores[place])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_endpoint_is_understood_without_a_word_about_it(start: Callable[..., Any], kind: str) -> None:
    server, reranker = start(kind)
    assert order(reranker.scores(QUERY, TEXTS, 10)) == BY_WORTH
    server.tell("well")
    assert order(reranker.scores(QUERY, TEXTS, 10)) == BY_WORTH
    assert server.tell("well") == [len(TEXTS)]  # one request, once the API is known


def test_an_endpoint_that_takes_few_texts_gets_them_in_parts(start: Callable[..., Any]) -> None:
    server, reranker = start("tei")
    texts = [f"pump {'!' * (number % 40)} {number}" for number in range(50)]
    scores = reranker.scores("pump", texts, 10)
    assert len(scores) == 50
    assert order(scores)[0] == 39
    server.tell("well")
    reranker.scores("pump", texts, 10)
    assert server.tell("well") == [25, 25]


def test_a_request_that_is_refused_whatever_its_size_does_not_shorten_later_ones(start: Callable[..., Any]) -> None:
    server, reranker = start("vllm")
    texts = [f"pump {number}" for number in range(40)]
    reranker.scores(QUERY, texts, 10)
    for mode in ("400", "422"):
        server.tell(mode)
        with pytest.raises(EmbedderMismatch, match="rerank_model"):
            reranker.scores(QUERY, texts, 10)
        server.tell("well")
        reranker.scores(QUERY, texts, 10)
        assert server.tell("well") == [len(texts)]


def test_a_late_endpoint_is_left_after_the_time(start: Callable[..., Any]) -> None:
    server, reranker = start("vllm")
    server.tell("hang")
    with pytest.raises(EmbedderUnavailable, match="did not answer within"):
        reranker.scores(QUERY, TEXTS, 0.2)
    server.tell("well")
    assert order(reranker.scores(QUERY, TEXTS, 10)) == BY_WORTH


@pytest.mark.parametrize(
    ("kind", "mode", "changed", "error", "named"),
    [
        ("vllm", "503", {}, EmbedderUnavailable, "503"),
        ("vllm", "nan", {}, EmbedderMismatch, "rerank_url"),
        ("infinity", "well", {"rerank_model": ""}, EmbedderMismatch, "rerank_model"),
        ("jina", "well", {"rerank_key_env": ""}, EmbedderMismatch, "rerank_key_env"),
    ],
)
def test_an_error_names_what_to_check_and_no_text(
    start: Callable[..., Any], caplog: pytest.LogCaptureFixture,
    kind: str, mode: str, changed: dict[str, Any], error: type[Exception], named: str,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    server, reranker = start(kind, **changed)
    server.tell(mode)
    with pytest.raises(error, match=named) as failed:
        reranker.scores(QUERY, TEXTS, 10)
    assert not any(secret in str(failed.value) + caplog.text for secret in (KEY, QUERY, *TEXTS))


def test_odd_texts_are_scored_and_empty_ones_are_refused(start: Callable[..., Any]) -> None:
    _, reranker = start("llama.cpp")
    assert len(reranker.scores("p\0ump", ["\ud800 pump", "x" * 1_000_000, "<|im_end|>"], 10)) == 3
    with pytest.raises(ValueError, match="empty"):
        reranker.scores(QUERY, ["pump", " \0 "], 10)


def test_settings_that_cannot_work_are_named() -> None:
    with pytest.raises(SettingsError, match="NO_SUCH_KEY"):
        build_reranker(Settings(rerank_url="http://127.0.0.1:9", rerank_key_env="NO_SUCH_KEY"), {})
    with pytest.raises(SettingsError, match="rerank_url"):
        build_reranker(Settings(rerank_url="http://127.0.0.1:0/x"), {})


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20).flatmap(lambda scores: st.permutations(
    [{"index": place, "relevance_score": score} for place, score in enumerate(scores)]
)))  # fmt: skip
def test_scores_come_in_the_order_of_the_texts(items: list[dict[str, Any]]) -> None:
    wanted = [item["relevance_score"] for item in sorted(items, key=lambda item: item["index"])]
    assert rerank_api.parse_scores(json.dumps({"results": items}).encode(), len(items)) == wanted
    for wrong in (len(items) - 1, len(items) + 1):
        with pytest.raises(rerank_api.WrongScores):
            rerank_api.parse_scores(json.dumps({"data": items}).encode(), wrong)


@pytest.mark.parametrize(
    "answer", ["", "[", "[1]", "{}", '{"results": 1}', '[{"index": 0}]', '[{"index": 1, "score": 1}]']
)
def test_another_answer_has_the_wrong_shape(answer: str) -> None:
    with pytest.raises(rerank_api.WrongScores):
        rerank_api.parse_scores(answer.encode(), 1)


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("http://h:80", ["http://h:80/rerank", "http://h:80/v1/rerank"]),
        ("http://h/v1/", ["http://h/v1/rerank"]),
        ("https://h/v2/rerank", ["https://h/v2/rerank"]),
        ("http://h/reranking", ["http://h/reranking"]),
    ],
)
def test_the_address_may_name_the_server_the_version_or_the_route(url: str, addresses: list[str]) -> None:
    assert list(dict.fromkeys(address for address, _ in rerank_api.candidates(url))) == addresses
