"""The files of a home that hold settings: the host's config.yaml, `.env`, and pgvector/config.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from ..errors import SettingsError, cure
from .environment import in_gateway, process_home

ENV_PREFIX = "HERMES_PGVECTOR_"
PERSON_KEY = f"{ENV_PREFIX}PERSON_KEY"
# The file in a home's folder that says that it began with the defaults of this release or a later one.
DEFAULTS = "defaults"
# What both hosts assume for a limit that is not set.
FILE_CAPS = {"memory": 2200, "user": 1375}
# The fast YAML loader, in C, overflows the stack where this many of these characters may each begin a level.
_LEVELS, _LEVELS_MAX = "[{-?", 2000


def variable(key: str) -> str:
    """The variable of the environment that sets the setting with this key."""
    return f"{ENV_PREFIX}{key.upper()}"


def config_file(home: Path) -> Path:
    """The file of settings that the set-up or the host's panel saves."""
    return home / "pgvector" / "config.json"


def read_config(home: Path) -> dict[str, Any]:
    """The saved settings; empty when there are none. Raises SettingsError."""
    path = config_file(home)
    try:
        document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError, RecursionError) as error:
        where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise SettingsError(
            f"{path} cannot be read: {type(error).__name__}{where}; {cure(error, 'correct or delete the file')}"
        ) from None
    if not isinstance(document, dict):
        raise SettingsError(f"{path} holds a {type(document).__name__}; it must hold one JSON object")
    return document


def person_key(hermes_home: str | os.PathLike[str]) -> str:
    """HERMES_PGVECTOR_PERSON_KEY of the `environment` of a home; empty when unset. Raises SettingsError.

    It is not a setting: it is read from this place only, and never shown.
    """
    return environment(Path(hermes_home)).get(PERSON_KEY, "")


def environment(home: Path, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a home has: those of the process, else of its `.env`. Raises SettingsError.

    A gateway that serves several profiles has the `.env` of its own home in its environment, as it was at its start.
    These variables are not those of the other homes.
    """
    environ = os.environ if environ is None else environ
    serves = in_gateway()
    foreign: Mapping[str, str | None] = {}
    # Without a home folder of the user, or when its files cannot be read, the environment has nothing of it.
    with suppress(RuntimeError, SettingsError):
        gateway = process_home(environ).resolve()
        at_start = _env_values_at_start(gateway) if serves else None
        if gateway != home.resolve():
            foreign = env_values(gateway) if at_start is None else at_start
    own = {
        name: value
        for name, value in environ.items()
        if value and not (name in foreign and (serves or value == foreign[name]))
    }
    return {name: value for name, value in env_values(home).items() if value} | own


@cache
def _env_values_at_start(gateway: Path) -> Mapping[str, str | None]:
    """The variables in the `.env` of a gateway's home when its process first looked. Raises SettingsError."""
    return env_values(gateway)


def env_values(home: Path) -> Mapping[str, str | None]:
    """The variables in the `.env` of a home, `${NAME}` in them filled in as hosts do. Raises SettingsError."""
    from dotenv import dotenv_values

    env_file = home / ".env"
    try:
        return dotenv_values(stream=_text(env_file)) if env_file.is_file() else {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{env_file} cannot be read: {type(error).__name__}; {cure(error, 'correct the file')}"
        ) from None


def _text(env_file: Path) -> StringIO:
    """The text of a `.env`, in Latin-1 where it is not in UTF-8, as hosts read it. UTF-16 raises UnicodeDecodeError."""
    content = env_file.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if b"\0" in content:
            raise
        text = content.decode("latin-1")
    return StringIO(text, newline=None)


def files_in_use(hermes_home: str | os.PathLike[str]) -> dict[str, bool]:
    """Whether the host uses MEMORY.md (`memory`) and USER.md (`user`), by its settings, which are on when unset.

    Raises SettingsError when config.yaml cannot be read.
    """
    values = host_section(Path(hermes_home), "memory")
    switches = {"memory": values.get("memory_enabled"), "user": values.get("user_profile_enabled")}
    return {target: _is_on(value) for target, value in switches.items()}


def file_caps(hermes_home: str | os.PathLike[str]) -> dict[str, int]:
    """The most characters that the host keeps in MEMORY.md (`memory`) and USER.md (`user`).

    Raises SettingsError when config.yaml cannot be read, or says something else than a number above 0.
    """
    values = host_section(Path(hermes_home), "memory")
    return {target: _cap(values, f"{target}_char_limit", default) for target, default in FILE_CAPS.items()}


def _cap(values: Mapping[str, Any], name: str, default: int) -> int:
    given = values.get(name, default)
    try:
        number = int(given)
    except (TypeError, ValueError, OverflowError):
        number = 0
    if number <= 0:
        raise SettingsError(f"memory.{name} in config.yaml is {str(given)[:40]!r}; it must be a number above 0")
    return number


def _is_on(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in ("1", "true", "yes", "on")
    return value is None or bool(value)


def has_earlier_defaults(home: Path, config: Any) -> bool:
    """Whether an earlier release began a home: it has files or settings of that, and no note of newer defaults.

    `config` is the host's configuration. Raises OSError when the home cannot be read.
    """
    state = home / "pgvector"
    if (state / DEFAULTS).exists():
        return False
    return (
        (state / "home_id").exists() or config_file(home).exists() or bool(section(config, "plugins").get("pgvector"))
    )


def host_section(home: Path, name: str) -> dict[str, Any]:
    """A section of the host's config.yaml; empty when it has none. Raises SettingsError when it cannot be read."""
    return section(host_config(home), name)


def section(config: Any, name: str) -> dict[str, Any]:
    """A section of a configuration that `host_config` read; empty when it has none."""
    values = config.get(name) if isinstance(config, dict) else None
    return values if isinstance(values, dict) else {}


def host_config(home: Path) -> Any:
    """The host's config.yaml; None when there is none. Raises SettingsError when it cannot be read."""
    path = home / "config.yaml"
    if not path.is_file():
        return None
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        fast = getattr(yaml, "CSafeLoader", None) if sum(map(text.count, _LEVELS)) < _LEVELS_MAX else None
        return yaml.load(text, fast or yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise SettingsError(
            f"{path} cannot be read: {type(error).__name__}{where}; {cure(error, 'correct the file')}"
        ) from None
