"""Saved settings of a home: secrets in `.env`, others in `pgvector/config.json`, the provider in the host's config.

A setting that is saved is removed from the places that take precedence.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import SettingsError
from ..files import make_private, overwrite
from ..settings import ENV_PREFIX, config_file, host_section, load, read_config

PROVIDER = "pgvector"
ACTIVATE = f"hermes config set memory.provider {PROVIDER}"
ACTIVATE_S_MAX = 60


class SavedSettings:
    """A context manager that saves settings of a home, and restores the files at its end unless `keep` was called.

    Raises SettingsError when a file cannot be read or written.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._before: dict[Path, tuple[str, int] | None] = {}
        self._environment: dict[str, str] = {}
        self._kept = False

    def __enter__(self) -> SavedSettings:
        for path in (self.env, self.config, self._home / "config.yaml"):
            try:
                self._before[path] = (_text(path), path.stat().st_mode & 0o777)
            except FileNotFoundError:
                self._before[path] = None
            except (OSError, ValueError) as error:
                raise _unusable(path, error) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._kept:
            return
        for path, before in self._before.items():
            if before is None:
                path.unlink(missing_ok=True)
            elif not path.exists() or _text(path) != before[0]:
                overwrite(path.resolve(), before[0])
                path.chmod(before[1])
        os.environ.update(self._environment)

    @property
    def env(self) -> Path:
        """The file with the secrets."""
        return self._home / ".env"

    @property
    def config(self) -> Path:
        """The file with the other settings."""
        return config_file(self._home)

    def keep(self) -> None:
        """Do not restore the files at the end."""
        self._kept = True

    def save(self, values: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        """Save settings by key, and secrets by variable name; an empty secret is removed."""
        removed = {f"{ENV_PREFIX}{key.upper()}": "" for key in values}
        try:
            self._forget({*removed, *secrets})
            change_env_file(self.env, {**removed, **secrets})
        except (OSError, ValueError) as error:
            raise _unusable(self.env, error) from None
        # An empty dsn overrides one in a place of lower precedence.
        write_config(self._home, {**read_config(self._home), "dsn": "", **values})

    def check(self, wanted: Mapping[str, Any]) -> None:
        """Raise SettingsError when a saved setting has no effect because another place takes precedence."""
        settings = load(self._home)
        for key, value in wanted.items():
            now = getattr(settings, key)
            if (now.get_secret_value() if key == "dsn" else now) != value:
                raise SettingsError(
                    f"{key} is also set elsewhere, which takes precedence: remove {ENV_PREFIX}{key.upper()} from the "
                    "environment and `memory.pgvector` from config.yaml, then run the set-up again"
                )

    def _forget(self, names: Collection[str]) -> None:
        """Remove variables from the environment that come from the `.env`, which is about to change."""
        stored = _stored(self.env)
        for name in names:
            if name in os.environ and os.environ[name] == stored.get(name):
                self._environment[name] = os.environ.pop(name)


def write_config(home: Path, document: Mapping[str, Any]) -> None:
    """Replace the saved settings; the file gets mode 0600. Raises SettingsError."""
    path = config_file(home)
    try:
        make_private(path.parent)
        overwrite(path.resolve(), f"{json.dumps(document, indent=2)}\n")
    except OSError as error:
        raise _unusable(path, error) from None


def change_env_file(path: Path, values: Mapping[str, str]) -> None:
    """Set variables in a `.env` and remove those with an empty value. Other lines stay; the file gets mode 0600.

    Raises OSError, UnicodeDecodeError, and SettingsError for a value of several lines.
    """
    for name, value in values.items():
        if len(value.splitlines()) > 1 or "\0" in value:
            raise SettingsError(f"{name} contains a line break; nothing is saved")
    lines = path.read_text(encoding="utf-8-sig").splitlines() if path.exists() else []
    left = {name: value for name, value in values.items() if value}
    changed = []
    for line in lines:
        name = _name_of(line)
        if name not in values:
            changed.append(line)
        elif name in left:
            changed.append(f"{name}={quoted(left.pop(name))}")
    changed += [f"{name}={quoted(value)}" for name, value in left.items()]
    if changed != lines:
        make_private(path.parent)
        # A `.env` may be a link; its target is written.
        overwrite(path.resolve(), "".join(f"{line}\n" for line in changed))


def quoted(value: str) -> str:
    """A value, quoted so that hosts, python-dotenv and shells read it from a `.env`."""
    if re.fullmatch(r"[\w@%+=:,./?&~-]*", value, re.ASCII):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def activate_in_host(config: MutableMapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Set `memory.provider` in the host's configuration, remove the `saved` settings, and save it."""
    from hermes_cli.config import save_config

    memory = config.get("memory")
    memory = config["memory"] = dict(memory) if isinstance(memory, Mapping) else {}
    memory["provider"] = PROVIDER
    section = memory.get(PROVIDER)
    if isinstance(section, Mapping):
        memory[PROVIDER] = {key: value for key, value in section.items() if key not in saved}
    save_config(config)


def activate(home: Path, saved: Mapping[str, Any]) -> bool:
    """Set `memory.provider` by the host's package when this Python has it, else by the `hermes` command.

    Returns False when there is no host.
    """
    try:
        from hermes_cli.config import load_config
        from hermes_constants import reset_hermes_home_override, set_hermes_home_override
    except ImportError:
        return _activate_by_command(home)
    token = set_hermes_home_override(home)
    try:
        activate_in_host(load_config(), saved)
    finally:
        reset_hermes_home_override(token)
    return True


def _activate_by_command(home: Path) -> bool:
    hermes = shutil.which("hermes")
    if hermes is None:
        return False
    try:
        done = subprocess.run(
            [hermes, "config", "set", "memory.provider", PROVIDER],
            env={**os.environ, "HERMES_HOME": str(home)}, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=ACTIVATE_S_MAX, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def active_provider(home: Path) -> str:
    """`memory.provider` in the home's config.yaml; empty when it is not set. Raises SettingsError."""
    return str(host_section(home, "memory").get("provider") or "")


def exported(home: Path, keys: Collection[str]) -> list[str]:
    """Those of these settings that the environment has, and not from the `.env` of the home."""
    stored = _stored(home / ".env")
    names = {key: f"{ENV_PREFIX}{key.upper()}" for key in keys}
    return [key for key, name in names.items() if os.environ.get(name) and os.environ[name] != stored.get(name)]


def _stored(env: Path) -> Mapping[str, str | None]:
    from dotenv import dotenv_values

    return dotenv_values(env, interpolate=False) if env.is_file() else {}


def _name_of(line: str) -> str:
    found = re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=", line)
    return found[1] if found else ""


def _text(path: Path) -> str:
    return path.read_bytes().decode()


def _unusable(path: Path, error: Exception) -> SettingsError:
    reason = getattr(error, "strerror", None) or type(error).__name__
    return SettingsError(f"{path} cannot be used ({reason}): fix it, then try again")
