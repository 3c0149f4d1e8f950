"""The models of an Ollama server, for choosing an embedder."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing

import httpx

from ..errors import PgvectorError
from . import models
from .http_client import HttpClient

OLLAMA = "http://127.0.0.1:11434"
NAMES_MAX = 200
ANSWER_BYTES_MAX = 1 << 20


def ollama_url() -> str:
    """The address of this machine's Ollama: from its variable `OLLAMA_HOST`, else its default."""
    configured = os.environ.get("OLLAMA_HOST", "").strip().rstrip("/")
    if not configured:
        return OLLAMA
    try:
        bare = "://" not in configured
        address = httpx.URL(f"http://{configured}" if bare else configured)
        host = "127.0.0.1" if address.host in ("", "0.0.0.0", "::") else address.host
        return str(address.copy_with(host=host, port=address.port or (11434 if bare else None))).rstrip("/")
    except httpx.InvalidURL:
        return OLLAMA


def ollama_models(url: str, timeout_s: float) -> list[str] | None:
    """The names of its models, embedding models first; None if no Ollama answers there in time."""
    deadline = time.monotonic() + timeout_s
    try:
        with closing(HttpClient(httpx.URL(url))) as client:
            answer = client.request("GET", f"{url}/api/tags", b"", ANSWER_BYTES_MAX, deadline)
        names = [str(model["name"]) for model in json.loads(answer.body)["models"]][:NAMES_MAX]
    except (PgvectorError, httpx.InvalidURL, ValueError, KeyError, TypeError, RecursionError):
        return None
    if answer.status != 200:
        return None
    return sorted(map(models.canonical, names), key=lambda name: not embeds(name))


def embeds(name: str) -> bool:
    """Whether the name suggests an embedding model."""
    return "embed" in name.lower() or models.known(name) != models.KnownModel()
