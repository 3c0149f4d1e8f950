"""The two HTTP APIs for embeddings, as pure functions: addresses, request bodies and answers."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, FailFast, ValidationError

from ..model import Vector

_OLLAMA_PATH = "/api/embed"


class WrongShape(ValueError):
    """The answer does not follow the dialect; the message describes it without repeating it."""


def _from_base64(value: Any) -> Any:
    """The numbers of a vector in base64. Another value is returned as it is."""
    if not isinstance(value, str):
        return value
    content = base64.b64decode(value, validate=True)
    if len(content) % 4:
        raise ValueError("not base64 of floats")
    return struct.unpack(f"<{len(content) // 4}f", content)


# Without FailFast, a wrong answer costs memory for an error of each of its numbers.
_Numbers: TypeAlias = Annotated[Vector, FailFast()]


class _OllamaAnswer(BaseModel):
    embeddings: Annotated[list[_Numbers], FailFast()]


class _OpenAiItem(BaseModel):
    index: int | None = None
    embedding: Annotated[_Numbers, BeforeValidator(_from_base64)]


class _OpenAiAnswer(BaseModel):
    data: Annotated[list[_OpenAiItem], FailFast()]


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


def parse_answer(address: str, content: bytes) -> list[Vector]:
    """The vectors of an answer, in the order of the texts. Raises WrongShape."""
    try:
        if is_ollama(address):
            return _OllamaAnswer.model_validate_json(content).embeddings
        items = _OpenAiAnswer.model_validate_json(content).data
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["type"] == "json_invalid":
            raise WrongShape("an answer that is not JSON") from None
        place = ".".join(map(str, problem["loc"])) or "answer"
        raise WrongShape(f"JSON of another form ({place}: {problem['msg']})") from None
    if any(item.index is not None for item in items):
        items.sort(key=lambda item: -1 if item.index is None else item.index)
        if [item.index for item in items] != list(range(len(items))):
            raise WrongShape(f"indexes that do not number {len(items)} vectors from 0")
    return [item.embedding for item in items]


def error_message(content: bytes) -> str:
    """The message of an error answer, in lower case, empty if there is none.

    It may contain a user's text, so use it to classify the error only and never show it.
    """
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
