"""An endpoint that scores texts by how well they answer a question."""

from __future__ import annotations

import time
from collections.abc import Sequence

import httpx

from ..errors import EmbedderLimited, EmbedderMismatch, EmbedderUnavailable
from ..settings import Settings
from . import rerank_api
from .http_client import HttpClient
from .rerank_api import Dialect
from .vectors import prepared

# TEI answers 422 and others 413 to more texts than they take at once.
_TOO_MANY = frozenset({413, 422})
_TEMPORARY = frozenset({408, 425})
_ANSWER_BYTES_BASE = 1 << 16
# Some endpoints repeat the texts in their answer, escaped.
_ANSWER_BYTES_PER_TEXT = 1 << 15


class _TooMany(EmbedderMismatch):
    """The endpoint may take fewer texts at once; it may also have another dialect."""


class Reranker:
    """An endpoint with the `/rerank` API of Cohere, Jina, vLLM, llama.cpp and Infinity, or that of TEI.

    Which one it has is found out by the first call. `key` is sent as a bearer token. Errors and logs contain neither it
    nor any text. `transport` replaces the network in tests. Safe for any thread. A forked child needs a new one. Its
    constructor raises InvalidURL, UnicodeError or SettingsError.
    """

    def __init__(self, settings: Settings, key: str = "", transport: httpx.BaseTransport | None = None) -> None:
        address = httpx.URL(settings.rerank_url)
        self._model, self._chars_max = settings.rerank_model, settings.rerank_chars_max
        self._candidates = rerank_api.candidates(str(address.copy_with(username=None, password=None)))
        self._texts_max = settings.rerank_hits_max
        self._client = HttpClient(address, key, transport, setting="rerank_url")

    def scores(self, query: str, texts: Sequence[str], timeout_s: float) -> list[float]:
        """One score for each text, in order; a higher one is a better answer to the query.

        Raises EmbedderUnavailable if a retry may help, EmbedderMismatch if an operator has to act, and ValueError for
        an empty query or text.
        """
        deadline = time.monotonic() + timeout_s
        query, clean = prepared(query, self._chars_max), [prepared(text, self._chars_max) for text in texts]
        return self._in_parts(query, clean, deadline)

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._client.close()

    def _in_parts(self, query: str, texts: list[str], deadline: float) -> list[float]:
        """The scores, asked for in as few requests as the endpoint takes."""
        found, most = list[float](), self._texts_max
        while len(found) < len(texts):
            part = texts[len(found) : len(found) + most]
            try:
                found += self._ask(query, part, deadline)
            except _TooMany:
                if len(part) == 1:
                    raise
                most = len(part) // 2
        # An endpoint that refused a single text has told nothing about how many it takes.
        self._texts_max = most
        return found

    def _ask(self, query: str, texts: list[str], deadline: float) -> list[float]:
        """The scores from the first candidate that answers them; later calls ask that one only."""
        errors: list[EmbedderMismatch] = []
        for address, dialect in self._candidates:
            try:
                scores = self._request(address, dialect, query, texts, deadline)
            except EmbedderMismatch as error:
                errors.append(error)
                continue
            self._candidates = ((address, dialect),)
            return scores
        # A refused request may be one with too many texts, at the right address.
        raise next((error for error in errors if isinstance(error, _TooMany)), errors[0])

    def _request(self, address: str, dialect: Dialect, query: str, texts: list[str], deadline: float) -> list[float]:
        payload = rerank_api.request_body(dialect, self._model, query, texts)
        bytes_max = _ANSWER_BYTES_BASE + _ANSWER_BYTES_PER_TEXT * len(texts)
        answer = self._client.request("POST", address, payload, bytes_max, deadline)
        status, answered = answer.status, f"{self._client.host} answered {answer.status}"
        if answer.limited:
            raise EmbedderLimited(answered, answer.wait_s)
        if status in _TEMPORARY or status >= 500:
            raise EmbedderUnavailable(answered)
        if status == 400 or status in _TOO_MANY:
            kind = EmbedderMismatch if status == 400 else _TooMany
            raise kind(f"{answered}; check rerank_url, rerank_model and the endpoint's log")
        if status != 200:
            advice = "the key that rerank_key_env names" if status in (401, 403) else "rerank_url"
            raise EmbedderMismatch(f"{answered}; check {advice}")
        try:
            return rerank_api.parse_scores(answer.body, len(texts))
        except rerank_api.WrongScores as wrong:
            raise EmbedderMismatch(f"{self._client.host} answered {wrong}; check rerank_url") from None
