"""The settings of a home after a change of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...embedding import models
from ...embedding.compatibility import EMBEDDER_SETTINGS
from ...errors import BadArgument
from ...hosts.config import read_config, variable
from ...settings import Settings, load
from .. import configuration


def changed(before: Settings, after: Settings) -> dict[str, Any]:
    """The settings of the embedder that differ, by key. One that may stay open for a bundled model stays so."""
    if not after.embed_url and not before.embed_url and not before.embed_model:
        after = after.model_copy(update={"embed_model": ""})
    values = {key: getattr(after, key) for key in EMBEDDER_SETTINGS}
    return {key: value for key, value in values.items() if value != getattr(before, key)}


def save(home: Path, after: Settings) -> dict[str, Any]:
    """Save the settings of the embedder in a home; returns those that it changed.

    Raises SettingsError, and changes nothing, when a file cannot be written or another place takes precedence.
    """
    values = changed(load(home), after)
    if values:
        with configuration.restored_on_error(home):
            configuration.change_variables(home, {variable(key): "" for key in values})
            configuration.write_config(home, {**read_config(home), **values})
            configuration.check_saved(home, values)
    return values


def wanted(settings: Settings, model: str, url: str | None, dimensions: int) -> Settings:
    """The settings with another model, as they will be saved. Raises SettingsError and BadArgument."""
    if not (url or settings.embed_url or model in models.BUNDLED_MODULES):
        raise BadArgument(f"--model {model!r} is no bundled model; give the endpoint that serves it as --url")
    values: dict[str, Any] = {"embed_model": model, "embed_dimensions": dimensions}
    if url is not None:
        values |= {"embed_url": url, "embed_api": "auto"}
    return configuration.validated({**settings.model_dump(), "dsn": settings.dsn, **values})
