"""What an Ollama has to offer, asked for when an embedder is chosen."""

from __future__ import annotations

import json
import os
import time

import httpx

from . import models

OLLAMA = "http://127.0.0.1:11434"
NAMES_MAX = 200
ANSWER_BYTES_MAX = 1 << 20


def ollama_url() -> str:
    """Where this machine's Ollama listens: as its own variable `OLLAMA_HOST` says, else its usual address."""
    named = os.environ.get("OLLAMA_HOST", "").strip().rstrip("/")
    if not named:
        return OLLAMA
    try:
        bare = "://" not in named
        address = httpx.URL(f"http://{named}" if bare else named)
        host = "127.0.0.1" if address.host in ("", "0.0.0.0", "::") else address.host
        return str(address.copy_with(host=host, port=address.port or (11434 if bare else None))).rstrip("/")
    except httpx.InvalidURL:
        return OLLAMA


def ollama_models(url: str, timeout_s: float) -> list[str] | None:
    """The names of the models that it has, those known to embed first; None when no Ollama answers there in time."""
    content = bytearray()
    deadline = time.monotonic() + timeout_s
    try:
        # No proxy is asked: it is this machine, or one beside it.
        with httpx.stream("GET", f"{url}/api/tags", timeout=timeout_s, trust_env=False) as response:
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > ANSWER_BYTES_MAX or time.monotonic() > deadline:
                    return None
        if response.status_code != 200:
            return None
        names = [str(model["name"]) for model in json.loads(content)["models"]][:NAMES_MAX]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None
    return sorted(map(models.canonical, names), key=lambda name: not embeds(name))


def embeds(name: str) -> bool:
    """Whether the name is that of a model that embeds, as far as a name can tell."""
    return "embed" in name.lower() or models.known(name) != models.KnownModel()
