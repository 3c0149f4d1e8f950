"""The HTTP APIs of re-rankers, as pure functions: addresses, request bodies and answers.

Most follow Cohere's: `documents` in, `results` with `index` and `relevance_score` out. Text Embeddings Inference takes
`texts` and answers a list with `index` and `score`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, FailFast, Field, TypeAdapter, ValidationError

Dialect: TypeAlias = Literal["documents", "texts"]
_ROUTES = ("/rerank", "/reranking")


class WrongScores(ValueError):
    """The answer is not one to the request; the message describes it without repeating it."""


class _Item(BaseModel):
    index: int
    score: float = Field(validation_alias=AliasChoices("relevance_score", "score"))


_Items: TypeAlias = Annotated[list[_Item], FailFast()]


class _Document(BaseModel):
    results: _Items = Field(validation_alias=AliasChoices("results", "data"))


_LIST: TypeAdapter[list[_Item]] = TypeAdapter(_Items)


def candidates(url: str) -> tuple[tuple[str, Dialect], ...]:
    """The addresses that `rerank_url` may mean, each with the dialects to try there, in order."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path.endswith(_ROUTES):
        paths = [path]
    elif path:
        paths = [f"{path}/rerank"]
    else:
        paths = ["/rerank", "/v1/rerank"]
    dialects: tuple[Dialect, ...] = ("documents", "texts")
    return tuple((parts._replace(path=each, fragment="").geturl(), dialect) for each in paths for dialect in dialects)


def request_body(dialect: Dialect, model: str, query: str, texts: Sequence[str]) -> bytes:
    """The JSON to post. Without a model, the endpoint uses the one that it serves."""
    document = {"query": query, dialect: list(texts)}
    given = {"truncate": True} if dialect == "texts" else {"top_n": len(texts)}
    named = {"model": model} if model else {}
    return json.dumps({**named, **document, **given}, ensure_ascii=False).encode()


def parse_scores(content: bytes, count: int) -> list[float]:
    """The score of each of `count` texts, in their order. Raises WrongScores."""
    try:
        bare = content.lstrip().startswith(b"[")
        items = _LIST.validate_json(content) if bare else _Document.model_validate_json(content).results
    except ValidationError as error:
        invalid = error.errors()[0]["type"] == "json_invalid"
        raise WrongScores("an answer that is not JSON" if invalid else "JSON of another form") from None
    scores = {item.index: item.score for item in items}
    if len(items) != count or scores.keys() != set(range(count)):
        raise WrongScores(f"{len(items)} scores that do not number {count} texts from 0")
    if not all(map(math.isfinite, scores.values())):
        raise WrongScores("a score that is not a number")
    return [scores[place] for place in range(count)]
