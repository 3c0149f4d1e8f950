"""The two HTTP APIs for embeddings, as pure functions: addresses, request bodies and answers."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

Rows: TypeAlias = list[Iterable[float]]

_OLLAMA_PATH = "/api/embed"


class WrongShape(ValueError):
    """The answer does not follow the dialect; the message describes it without repeating it."""


def candidates(url: str, api: Literal["auto", "openai", "ollama"]) -> tuple[str, ...]:
    """The addresses that `embed_url` may mean, in the order to try. A path that names a dialect decides."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    ollama = [path.removesuffix("/embed").removesuffix("/embeddings").removesuffix("/api") + _OLLAMA_PATH]
    if path.endswith("/embeddings"):
        openai = [path]
    elif path.rsplit("/", 1)[-1].startswith("v1"):
        openai = [f"{path}/embeddings"]
    else:
        openai = [f"{path}/v1/embeddings", f"{path}/embeddings"] if path else ["/v1/embeddings"]
    if api == "openai":
        paths = openai
    elif api == "ollama" or path.endswith(("/api", _OLLAMA_PATH)):
        paths = ollama
    else:
        paths = openai if len(openai) == 1 and path else ollama + openai
    return tuple(parts._replace(path=each, fragment="").geturl() for each in paths)


def is_ollama(address: str) -> bool:
    """Whether an address of `candidates` serves the dialect of Ollama, not that of OpenAI."""
    return urlsplit(address).path.endswith(_OLLAMA_PATH)


def request_body(address: str, model: str, texts: Sequence[str], *, as_base64: bool, dimensions: int = 0) -> bytes:
    """The JSON to post. `as_base64` requests base64 floats where the dialect has them; `dimensions` above 0 requests
    vectors of that length.
    """
    document: dict[str, Any] = {"model": model, "input": list(texts)}
    if not is_ollama(address):
        document["encoding_format"] = "base64" if as_base64 else "float"
    if dimensions:
        document["dimensions"] = dimensions
    return json.dumps(document, ensure_ascii=False).encode("utf-8")


def parse_answer(address: str, content: bytes) -> Rows:
    """The vectors of an answer, in the order of the texts. Raises WrongShape."""
    key = "embeddings" if is_ollama(address) else "data"
    rows = _json_object(content).get(key)
    if not isinstance(rows, list):
        raise WrongShape(f"an answer without a list {key!r}")
    if is_ollama(address):
        return [_floats(row) for row in rows]
    return [_floats(row.get("embedding")) for row in _in_order(rows)]


def error_message(content: bytes) -> str:
    """The message of an error answer, in lower case, empty if there is none.

    It may contain a user's text, so use it to classify the error only and never show it.
    """
    try:
        document = _json_object(content)
    except WrongShape:
        return ""
    error = document.get("error") or document.get("message") or document.get("detail")
    if isinstance(error, dict):
        error = error.get("message")
    return error.lower() if isinstance(error, str) else ""


def _json_object(content: bytes) -> dict[str, Any]:
    """The object that an answer is; empty for other JSON."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise WrongShape("an answer that is not JSON") from None
    return document if isinstance(document, dict) else {}


def _in_order(rows: list[Any]) -> list[dict[str, Any]]:
    items = [row for row in rows if isinstance(row, dict)]
    if len(items) != len(rows):
        raise WrongShape("a list 'data' whose items are not objects")
    indexes = [row.get("index") for row in items]
    if all(index is None for index in indexes):
        return items
    by_index = {index: row for index, row in zip(indexes, items, strict=True) if type(index) is int}
    if sorted(by_index) != list(range(len(items))):
        raise WrongShape(f"indexes that do not number {len(items)} vectors from 0")
    return [by_index[index] for index in range(len(items))]


def _floats(value: Any) -> Iterable[float]:
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        raise WrongShape("a vector that is neither a list nor base64")
    try:
        content = base64.b64decode(value, validate=True)
        return struct.unpack(f"<{len(content) // 4}f", content)
    except (ValueError, struct.error):
        raise WrongShape("a vector with invalid base64") from None
