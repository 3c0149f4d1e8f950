"""Embedding endpoints with the HTTP API of OpenAI or of Ollama."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import httpx

from ..errors import EmbedderFailed, EmbedderLimited, EmbedderMismatch, EmbedderUnavailable
from ..model import Vector
from ..settings import Settings
from . import dialects, models
from .http_client import PROXY_VARIABLES, Answer, HttpClient
from .vectors import TextRefused, prepared, truncated, validated

_TEMPORARY = frozenset({408, 424, 425})
_KEY_REFUSED = frozenset({401, 403})
_BAD_TEXT = frozenset({400, 413, 422})
_TOO_LONG = re.compile(r"context (length|window|size)|too (long|large)|input length|tokens")
_NOT_A_NUMBER = re.compile(r"unsupported value: [-+]?(nan|inf)")
# A text is not truncated below this: a shorter beginning does not represent it.
_TRUNCATED_BYTES_MIN = 128
_ANSWER_BYTES_BASE = 1 << 16
_ANSWER_BYTES_PER_TEXT = 1 << 17


class _BatchRefused(EmbedderMismatch):
    """The endpoint refuses these texts together, or one of them as it is."""

    def __init__(self, answered: str, *, too_long: bool) -> None:
        super().__init__(f"{answered}; check embed_model, embed_url and the endpoint's log")
        self.answered, self.too_long = answered, too_long


class _WrongEndpoint(EmbedderMismatch):
    """This address does not serve the dialect. Another may."""


class _KeyRefused(_WrongEndpoint):
    """This address refuses the key."""


class HttpEmbedder:
    """An endpoint with OpenAI's `/v1/embeddings` or Ollama's `/api/embed`, on kept-alive connections.

    The address may name the dialect by its path. Otherwise, unless the settings name it, Ollama's is tried first, and
    the one that answers is cached. `key` is sent as a bearer token and appears in no message. The `timeout_s` of a call
    limits all of its requests, retries and reads together, but not the name resolution of the system. `transport`
    replaces the network in tests.

    Safe for any thread. A forked child needs a new embedder. Raises EmbedderUnavailable if a retry may help,
    TextRefused for a text that the endpoint cannot embed, EmbedderMismatch if an operator has to act, and ValueError
    for an empty text. Its constructor raises InvalidURL, UnicodeError or SettingsError.
    """

    def __init__(self, settings: Settings, key: str = "", transport: httpx.BaseTransport | None = None) -> None:
        address = httpx.URL(settings.embed_url)
        self._requested_model = settings.embed_model or models.DEFAULT_OVER_HTTP
        self.model = models.canonical(self._requested_model)
        self._known = models.known(self._requested_model)
        url = str(address.copy_with(username=None, password=None))
        self._candidates = dialects.candidates(url, settings.embed_api)
        # Parsed once: it takes a tenth of the time of a request.
        self._urls = {each: httpx.URL(each) for each in self._candidates}
        self._address: str | None = None
        self.dimensions = settings.embed_dimensions or self._known.dimensions
        self._requested_dimensions = settings.embed_dimensions if self._known.shortens else 0
        self._batch_max = settings.embed_batch_max
        self._chars_max = min(settings.embed_chars_max, self._known.chars_max or settings.embed_chars_max)
        self._accepts_base64: bool | None = None
        self._has_answered = False
        self._client = HttpClient(address, key, transport)
        self._host = self._client.host

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        """One unit vector for each text, in order. If a request fails or the time runs out, all results are lost."""
        deadline = time.monotonic() + timeout_s
        clean = [prepared(text, self._chars_max) for text in texts]
        found: list[Vector] = []
        for start in range(0, len(clean), self._batch_max):
            batch = clean[start : start + self._batch_max]
            found += self._embed_resizing(self._known.passage_prefix, batch, start, deadline)
        return found

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        """The unit vector of a query."""
        deadline = time.monotonic() + timeout_s
        clean = prepared(text, self._chars_max)
        return self._embed_resizing(self._known.query_prefix, [clean], 0, deadline)[0]

    def close(self) -> None:
        """Close the connections; later calls raise EmbedderUnavailable. Safe to call twice."""
        self._client.close()

    def _embed_resizing(self, prefix: str, batch: list[str], first: int, deadline: float) -> list[Vector]:
        """The vectors of a batch. While the endpoint refuses it, truncate its longest texts or halve it."""
        while True:
            try:
                return self._embed([prefix + text for text in batch], deadline)
            except TextRefused as refused:
                raise TextRefused(str(refused), first + refused.index) from None
            except _BatchRefused as refused:
                longest = max(len(text.encode("utf-8")) for text in batch)
                if longest > _TRUNCATED_BYTES_MIN and (refused.too_long or len(batch) == 1):
                    batch = [truncated(text, longest // 2) for text in batch]
                elif len(batch) > 1:
                    break
                elif self._has_answered:
                    raise TextRefused(f"{refused.answered} to one text, even when it was truncated", first) from None
                else:
                    raise
        half = len(batch) // 2
        head = self._embed_resizing(prefix, batch[:half], first, deadline)
        return head + self._embed_resizing(prefix, batch[half:], first + half, deadline)

    def _embed(self, inputs: list[str], deadline: float) -> list[Vector]:
        """The vectors of a batch, from the cached address or else from the first candidate that serves its dialect."""
        cached = self._address
        wrong: list[_WrongEndpoint] = []
        for address in (cached,) if cached else self._candidates:
            try:
                raw = self._request(address, inputs, deadline)
            except _WrongEndpoint as error:
                wrong.append(error)
                continue
            source = f"{self._requested_model} at {self._host}"
            vectors = validated(
                raw, count=len(inputs), dimensions=self.dimensions, source=source, trusted=self._has_answered
            )
            self._address, self.dimensions, self._has_answered = address, len(vectors[0]), True
            return vectors
        self._address = None
        # A refused key is the most useful of several errors.
        raise next((error for error in wrong if isinstance(error, _KeyRefused)), wrong[-1])

    def _request(self, address: str, inputs: list[str], deadline: float) -> list[Vector]:
        as_base64 = self._accepts_base64 is not False and not dialects.is_ollama(address)
        answer = self._post(address, inputs, as_base64, deadline)
        if as_base64 and self._accepts_base64 is None:
            if answer.status in (400, 422):
                answer = self._post(address, inputs, False, deadline)
                as_base64 = False
            if answer.status == 200:
                self._accepts_base64 = as_base64
        if answer.status != 200:
            raise self._status_error(answer)
        try:
            return dialects.parse_answer(address, answer.body)
        except dialects.WrongShape as wrong:
            raise _WrongEndpoint(f"{self._host} answered {wrong}; check embed_url and embed_api") from None

    def _post(self, address: str, inputs: list[str], as_base64: bool, deadline: float) -> Answer:
        payload = dialects.request_body(
            address, self._requested_model, inputs, as_base64=as_base64, dimensions=self._requested_dimensions
        )
        bytes_max = _ANSWER_BYTES_BASE + _ANSWER_BYTES_PER_TEXT * len(inputs)
        return self._client.request("POST", self._urls[address], payload, bytes_max, deadline)

    def _status_error(self, answer: Answer) -> Exception:
        """The error for a status other than 200. It repeats nothing of the endpoint's message."""
        status, message = answer.status, dialects.error_message(answer.body)
        answered = f"{self._host} answered {status}"
        if (status in _BAD_TEXT or status == 500) and _TOO_LONG.search(message):
            return _BatchRefused(answered, too_long=True)
        if status in (400, 404) and "model" in message:
            model = self._requested_model
            pull = f"pull it there (`ollama pull {model}`) or correct embed_model"
            return EmbedderMismatch(f"{answered}: it has no embedding model {model!r}; {pull}")
        if status in _BAD_TEXT or (status == 500 and _NOT_A_NUMBER.search(message)):
            return _BatchRefused(answered, too_long=False)
        if answer.limited:
            return EmbedderLimited(f"{answered}: it takes no more requests for now", answer.wait_s)
        if status in _TEMPORARY or status >= 500:
            kind = EmbedderFailed if status == 500 else EmbedderUnavailable
            return kind(f"{answered}; it may answer again later")
        if status == httpx.codes.PROXY_AUTHENTICATION_REQUIRED:
            return EmbedderMismatch(
                f"the proxy before {self._host} answered 407: check the password in {PROXY_VARIABLES}"
            )
        if status in _KEY_REFUSED:
            return _KeyRefused(f"{answered}: check the key in the variable that embed_key_env names")
        advice = "check embed_url and embed_api" if status < 400 or status in (404, 405) else "see the endpoint's log"
        return _WrongEndpoint(f"{answered}; {advice}")
