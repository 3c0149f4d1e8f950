"""Hooks for the host's panels: settings to show and save, status, files to back up, identity of the memory."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import SettingsError
from ..hosts.config import read_config, variable
from ..mirror.home import Home
from ..settings import SECRETS, Settings, load
from .configuration import check_saved, validated, without_secrets, write_config

OFFERED = {
    "dsn": "Database",
    "embed_url": "Embedding endpoint",
    "embed_model": "Embedding model",
    "embed_api": "Embedding API",
    "embed_key_env": "Variable of the API key",
    "prefetch_limit": "Memories before a turn",
    "sync_turns": "Keep turns",
}
DUMP_AGE_S_MAX = 300.0
DUMP_S_MAX = 120.0
# The settings that decide on themes, on what is stored, and on the tools.
DECIDING = {
    "theme_template", "theme_aliases", "allowed_themes", "hash_personal_keys", "cross_theme_recall", "also_recall",
    "also_write", "bench_themes", "off_record", "recall_mode", "tools", "keep", "owner_accounts", "mask_secrets",
    "mask_secrets_in_entries",
}  # fmt: skip


def fields() -> list[dict[str, Any]]:
    """The settings that a new user needs most, in the form of the host's `get_config_schema`."""
    schemas = Settings.model_json_schema()["properties"]
    return [_field(key, label, schemas[key]) for key, label in OFFERED.items()]


def save(values: Mapping[str, Any], hermes_home: str | os.PathLike[str]) -> None:
    """Save settings to `pgvector/config.json`, without `SECRETS`, which belong in `.env`. Other saved settings stay.

    Raises ValueError, which hosts show to the user, when a value is not allowed, another place takes precedence, or
    the file cannot be read or written.
    """
    try:
        _save(values, Path(hermes_home).expanduser())
    except SettingsError as error:
        raise ValueError(str(error)) from None


def _save(values: Mapping[str, Any], home: Path) -> None:
    given = {key: value for key, value in values.items() if key in Settings.model_fields and key not in SECRETS}
    # An empty field that is not a text means the default.
    emptied = {key for key, value in given.items() if value == "" and Settings.model_fields[key].annotation is not str}
    before = {key: value for key, value in read_config(home).items() if key not in emptied}
    kept = set(given) - emptied
    valid = validated({key: given[key] for key in kept}).model_dump(mode="json", include=kept)
    write_config(home, {**before, **valid})
    check_saved(home, valid)


def status(home: Path) -> dict[str, Any]:
    """Database and embedder for `hermes memory status`, without secrets; only `problem` when the settings are wrong."""
    from ..store.connection.dsn import describe, unusable

    try:
        settings = load(home)
    except SettingsError as error:
        return {"problem": str(error)}
    problem = unusable(settings)
    if problem:
        return {"problem": problem}
    dsn = settings.dsn.get_secret_value()
    shown = {
        "database": describe(dsn) if dsn else "embedded server",
        "embedder": without_secrets(settings.embed_url) if settings.embed_url else "bundled model",
        "embed_model": settings.embed_model or "(default)",
    }
    if settings.allowed_themes:
        shown["allowed_themes"] = ", ".join(settings.allowed_themes)
    return shown


def backups(home: Path) -> list[str]:
    """The folder with a new dump of the embedded server; empty when the home has no embedded server.

    Hosts leave a folder `backups` out when they copy a home, so the dump is in a backup once.
    """
    from ..store.embedded.dump import fresh_dump
    from ..store.embedded.server import EmbeddedServer

    settings = load(home)
    if settings.dsn.get_secret_value():
        return []
    folder = Home(home).state / "backups"
    server = EmbeddedServer(home, settings.data_dir)
    dump = fresh_dump(server, folder, age_s_max=DUMP_AGE_S_MAX, timeout_s=DUMP_S_MAX)
    return [str(folder)] if dump else []


def identity(home: Path) -> dict[str, str]:
    """A digest of the settings that decide on themes, on what is stored, and on the tools.

    Reads the settings only when the times of their files have changed.
    """
    names = ("config.yaml", ".env", "pgvector/config.json")
    return {"pgvector.themes": _digest(home, tuple(_stamp(home / name) for name in names))}


@lru_cache(maxsize=64)
def _digest(home: Path, _: tuple[tuple[int, int], ...]) -> str:
    try:
        settings = load(home)
    except SettingsError:
        return "unreadable"
    deciding = settings.model_dump(mode="json", include=DECIDING)
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def _field(key: str, label: str, setting: Mapping[str, Any]) -> dict[str, Any]:
    """A field of the form, made from the JSON schema of its setting."""
    field: dict[str, Any] = {"key": key, "label": label, "description": setting["description"]}
    if key == "dsn":
        return {**field, "secret": True, "env_var": variable("dsn")}
    field |= {name: setting[name] for name in ("default", "minimum", "maximum") if name in setting}
    if setting["type"] != "string":
        field["type"] = setting["type"]
    return {**field, "choices": setting["enum"]} if "enum" in setting else field
