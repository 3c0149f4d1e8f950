"""The two languages of embedding endpoints, as pure functions: where to ask, what to send, how to read the answer."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

Dialect: TypeAlias = Literal["openai", "ollama"]
Rows: TypeAlias = list[Iterable[float]]


class WrongShape(ValueError):
    """The answer is not one of this dialect; the message says what was wrong with it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and the dialect spoken there."""

    dialect: Dialect
    url: str


def candidates(url: str, api: Literal["auto", "openai", "ollama"]) -> tuple[Endpoint, ...]:
    """The endpoints that a setting may mean, in the order to try. A path that names one is believed."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")

    def at(dialect: Dialect, new_path: str) -> Endpoint:
        return Endpoint(dialect, parts._replace(path=new_path, fragment="").geturl())

    ollama_base = path.removesuffix("/embed").removesuffix("/embeddings").removesuffix("/api")
    ollama = at("ollama", f"{ollama_base}/api/embed")
    openai: tuple[Endpoint, ...]
    if path.endswith("/embeddings"):
        openai = (at("openai", path),)
    elif path.rsplit("/", 1)[-1].startswith("v1"):
        openai = (at("openai", f"{path}/embeddings"),)
    else:
        openai = (at("openai", f"{path}/v1/embeddings"),) + ((at("openai", f"{path}/embeddings"),) if path else ())
    if api == "openai":
        return openai
    if api == "ollama" or path.endswith(("/api", "/api/embed")):
        return (ollama,)
    return openai if len(openai) == 1 and path else (ollama, *openai)


def body(endpoint: Endpoint, model: str, texts: Sequence[str], *, packed: bool, dimensions: int = 0) -> bytes:
    """The JSON to post. `packed` asks for base64 floats; a `dimensions` above 0 asks for vectors of that length."""
    document: dict[str, Any] = {"model": model, "input": list(texts)}
    if endpoint.dialect == "openai":
        document["encoding_format"] = "base64" if packed else "float"
    if dimensions:
        document["dimensions"] = dimensions
    return json.dumps(document, ensure_ascii=False).encode("utf-8")


def answer(endpoint: Endpoint, content: bytes) -> Rows:
    """The vectors of an answer, in the order of the texts. Raises WrongShape."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise WrongShape("an answer that is not JSON") from None
    key = "data" if endpoint.dialect == "openai" else "embeddings"
    rows = document.get(key) if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise WrongShape(f"an answer without a list {key!r}")
    if endpoint.dialect == "ollama":
        return [_floats(row) for row in rows]
    return [_floats(row.get("embedding")) for row in _in_order(rows)]


def complaint(content: bytes) -> str:
    """The sentence in an error answer, in lower case, to classify it by. It may repeat a user's text: never show it."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(document, dict):
        return ""
    error = document.get("error") or document.get("message") or document.get("detail")
    if isinstance(error, dict):
        error = error.get("message")
    return error.lower() if isinstance(error, str) else ""


def _in_order(rows: list[Any]) -> list[dict[str, Any]]:
    items = [row for row in rows if isinstance(row, dict)]
    if len(items) != len(rows):
        raise WrongShape("a list 'data' whose items are not objects")
    places = [row.get("index") for row in items]
    if all(place is None for place in places):
        return items
    by_place = {place: row for place, row in zip(places, items, strict=True) if type(place) is int}
    if sorted(by_place) != list(range(len(items))):
        raise WrongShape(f"indexes that do not number {len(items)} vectors from 0")
    return [by_place[place] for place in range(len(items))]


def _floats(value: Any) -> Iterable[float]:
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        raise WrongShape("a vector that is neither a list nor base64")
    numbers = array("f")
    try:
        numbers.frombytes(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        raise WrongShape("a vector whose base64 is broken") from None
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
