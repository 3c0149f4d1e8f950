"""Embedding over HTTP, in the manner of OpenAI and of Ollama."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from typing import Literal

import httpx

from ..errors import EmbedderMismatch, EmbedderUnavailable
from ..model import Vector
from . import dialects, models
from .channel import PROXY_VARIABLES, Channel
from .dialects import Endpoint
from .pace import Pace
from .texts import cut, longest_bytes, prepared
from .vectors import TextRefused, checked

_SECONDS_PER_TEXT = 0.005
_TRY_AGAIN = frozenset({408, 424, 425, 429})
_KEY_REFUSED = frozenset({401, 403})
_BAD_TEXT = frozenset({400, 413, 422})
_TOO_LONG = re.compile(r"context (length|window|size)|too (long|large)|input length|tokens")
_NOT_A_NUMBER = re.compile(r"unsupported value: [-+]?(nan|inf)")
# A text is not cut shorter than this to please an endpoint: what is left would not stand for it.
_CUT_BYTES_MIN = 128
_ANSWER_BYTES_BASE = 1 << 16
_ANSWER_BYTES_PER_TEXT = 1 << 17


class _Unfit(Exception):
    """The endpoint cannot take these texts together, or one of them as it is."""

    def __init__(self, status: int, *, too_long: bool) -> None:
        super().__init__()
        self.status = status
        self.too_long = too_long


class _NotHere(Exception):
    """Nothing at this address speaks the dialect; `error` is what to raise when no other address does either."""

    def __init__(self, status: int, error: EmbedderMismatch) -> None:
        super().__init__()
        self.status = status
        self.error = error


class HttpEmbedder:
    """An endpoint that speaks OpenAI's `/v1/embeddings` or Ollama's `/api/embed`, on connections that are kept alive.

    `url` may name the dialect by its path; else, with `api` "auto", Ollama's is tried first and the one that answers is
    remembered. `key` is sent as a bearer token and appears in no message. `dimensions` is the expected vector length, 0
    when unknown. Requests hold at most `batch_max` texts of `chars_max` characters. `timeout_s` of a call limits all of
    it: every request, retry and read, though not the system's name resolution.

    Safe to call from several threads; a forked child needs one of its own. Raises EmbedderUnavailable when trying again
    may help, TextRefused for a text that the endpoint cannot take, EmbedderMismatch when an operator has to act, and
    ValueError for an empty text.
    """

    def __init__(
        self,
        url: str,
        model: str = models.DEFAULT_OVER_HTTP,
        *,
        api: Literal["auto", "openai", "ollama"] = "auto",
        key: str = "",
        dimensions: int = 0,
        batch_max: int = 64,
        chars_max: int = 6000,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        address = httpx.URL(url)
        self._model, self._known = model, models.known(model)
        self._candidates = dialects.candidates(str(address.copy_with(username=None, password=None)), api)
        self._found: Endpoint | None = self._candidates[0] if len(self._candidates) == 1 else None
        self._dimensions = dimensions or self._known.dimensions
        self._asked_dimensions = dimensions if self._known.shortens else 0
        self._batch_max = batch_max
        self._chars_max = min(chars_max, self._known.chars_max or chars_max)
        self._packed: bool | None = None
        self._answered = False
        self._lock = threading.Lock()
        self._pace = Pace(_SECONDS_PER_TEXT)
        self._channel = Channel(address, key, transport)
        self._host = self._channel.host

    def __repr__(self) -> str:
        return f"HttpEmbedder({self._host!r}, {self._model!r})"

    @property
    def model(self) -> str:
        return models.canonical(self._model)

    @property
    def dimensions(self) -> int | None:
        return self._dimensions

    @property
    def seconds_per_text(self) -> float:
        return self._pace.seconds_per_text

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        """One unit vector a text, in order, within `timeout_s` seconds or not at all."""
        deadline = time.monotonic() + timeout_s
        clean = [prepared(text, self._chars_max) for text in texts]
        if not clean:
            return []
        found: list[Vector] = []
        with self._pace.measured(len(clean)):
            for start in range(0, len(clean), self._batch_max):
                batch = clean[start : start + self._batch_max]
                found += self._fitted(self._known.passage_prefix, batch, start, deadline)
        return found

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        """The unit vector of a question."""
        deadline = time.monotonic() + timeout_s
        clean = prepared(text, self._chars_max)
        return self._fitted(self._known.query_prefix, [clean], 0, deadline)[0]

    def close(self) -> None:
        """Close the connections; a call under way ends with EmbedderUnavailable. Safe to call twice."""
        self._channel.close()

    def _fitted(self, prefix: str, batch: list[str], first: int, deadline: float) -> list[Vector]:
        """Embed a batch, cutting its longest texts or halving it for as long as the endpoint finds it too big."""
        while True:
            try:
                return self._embed([prefix + text for text in batch], deadline)
            except TextRefused as refused:
                raise TextRefused(str(refused), first + refused.index) from None
            except _Unfit as unfit:
                longest = longest_bytes(batch)
                if longest > _CUT_BYTES_MIN and (unfit.too_long or len(batch) == 1):
                    batch = [cut(text, longest // 2) for text in batch]
                elif len(batch) == 1:
                    raise self._refusal(unfit.status, first) from None
                else:
                    break
        half = len(batch) // 2
        head = self._fitted(prefix, batch[:half], first, deadline)
        return head + self._fitted(prefix, batch[half:], first + half, deadline)

    def _embed(self, inputs: list[str], deadline: float) -> list[Vector]:
        """One batch, from the endpoint that is known or from the first candidate that speaks its dialect."""
        found = self._found
        missing: _NotHere | None = None
        for endpoint in (found,) if found else self._candidates:
            try:
                raw = self._ask(endpoint, inputs, deadline)
            except _NotHere as error:
                # Of several refusals the one about the key tells most.
                missing = missing if missing and missing.status in _KEY_REFUSED else error
                continue
            who = f"{self._model} at {self._host}"
            result = checked(raw, count=len(inputs), dimensions=self._dimensions, who=who, trusted=self._answered)
            self._remember(endpoint, len(result[0]), who)
            return result
        if len(self._candidates) > 1:
            self._found = None
        raise missing.error if missing else EmbedderMismatch(f"{self._host} has no address to ask; check embed_url")

    def _remember(self, endpoint: Endpoint, dimensions: int, who: str) -> None:
        with self._lock:
            if self._dimensions not in (None, dimensions):
                raise EmbedderMismatch(f"{who} answered vectors of {self._dimensions} numbers first, {dimensions} now")
            self._found, self._dimensions, self._answered = endpoint, dimensions, True

    def _ask(self, endpoint: Endpoint, inputs: list[str], deadline: float) -> dialects.Rows:
        packed = self._packed is not False and endpoint.dialect == "openai"
        status, content = self._post(endpoint, inputs, packed, deadline)
        if packed and self._packed is None:
            if status in (400, 422):
                status, content = self._post(endpoint, inputs, False, deadline)
                packed = False
            if status == 200:
                self._packed = packed
        if status != 200:
            raise self._verdict(status, dialects.complaint(content))
        try:
            return dialects.answer(endpoint, content)
        except dialects.WrongShape as wrong:
            advice = "check embed_url and embed_api"
            raise _NotHere(status, EmbedderMismatch(f"{self._host} answered {wrong}; {advice}")) from None

    def _verdict(self, status: int, complaint: str) -> Exception:
        """What an answer that is not 200 means for the caller. The endpoint's own words stay out of the messages."""
        says = f"{self._host} answered {status}"
        if (status in _BAD_TEXT or status == 500) and _TOO_LONG.search(complaint):
            return _Unfit(status, too_long=True)
        if status in (400, 404) and "model" in complaint:
            pull = f"pull it there (`ollama pull {self._model}`) or mend embed_model"
            return EmbedderMismatch(f"{says}: it has no embedding model {self._model!r}; {pull}")
        if status in _BAD_TEXT or (status == 500 and _NOT_A_NUMBER.search(complaint)):
            return _Unfit(status, too_long=False)
        if status in _TRY_AGAIN or status >= 500:
            return EmbedderUnavailable(f"{says}; it is asked again later")
        if status == httpx.codes.PROXY_AUTHENTICATION_REQUIRED:
            return EmbedderMismatch(
                f"the proxy before {self._host} answered 407: check the password in {PROXY_VARIABLES}"
            )
        if status in _KEY_REFUSED:
            return _NotHere(status, EmbedderMismatch(f"{says}: check the key in the variable that embed_key_env names"))
        advice = "check embed_url and embed_api" if status < 400 or status in (404, 405) else "see the endpoint's log"
        return _NotHere(status, EmbedderMismatch(f"{says}; {advice}"))

    def _refusal(self, status: int, index: int) -> EmbedderMismatch:
        if self._answered:
            return TextRefused(f"{self._host} answered {status} to one text, however short it was cut", index)
        return EmbedderMismatch(f"{self._host} answered {status}; check embed_model, embed_url and the endpoint's log")

    def _post(self, endpoint: Endpoint, inputs: list[str], packed: bool, deadline: float) -> tuple[int, bytes]:
        payload = dialects.body(endpoint, self._model, inputs, packed=packed, dimensions=self._asked_dimensions)
        bytes_max = _ANSWER_BYTES_BASE + _ANSWER_BYTES_PER_TEXT * len(inputs)
        return self._channel.post(endpoint.url, payload, bytes_max, deadline)
