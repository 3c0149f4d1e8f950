"""What the set-up keeps: secrets in `.env`, other settings in `pgvector/config.json`, and the name of the provider.

Every setting that is saved here is taken out of the places that would win over it, so that it holds.
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
from uuid import uuid4

from ..errors import SettingsError
from ..settings import ENV_PREFIX, config_file, load, read_config
from . import link

ACTIVATE_S_MAX = 60


class Saved:
    """Saves settings of one home, as a context manager that undoes all of it unless `keep` was called.

    Raises SettingsError for a file that cannot be read or written.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._before: dict[Path, tuple[bytes, int] | None] = {}
        self._environment: dict[str, str] = {}
        self._kept = False

    def __enter__(self) -> Saved:
        for path in (self.env, self.config, self._home / "config.yaml"):
            try:
                self._before[path] = (path.read_bytes(), path.stat().st_mode & 0o777)
            except FileNotFoundError:
                self._before[path] = None
            except OSError as error:
                raise _unusable(path, error) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._kept:
            return
        for path, before in self._before.items():
            if before is None:
                path.unlink(missing_ok=True)
            elif not path.exists() or path.read_bytes() != before[0]:
                _write(path, before[0], before[1])
        for name, value in self._environment.items():
            os.environ[name] = value

    @property
    def env(self) -> Path:
        """Where secrets are."""
        return self._home / ".env"

    @property
    def config(self) -> Path:
        """Where the other settings are."""
        return config_file(self._home)

    def keep(self) -> None:
        """Let what was saved stay."""
        self._kept = True

    def save(self, values: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        """Save settings by their keys, and secrets by the names of their variables; an empty secret is taken away."""
        gone = {f"{ENV_PREFIX}{key.upper()}": "" for key in values}
        try:
            self._forget({*gone, *secrets})
            change_env_file(self.env, {**gone, **secrets})
        except (OSError, ValueError) as error:
            raise _unusable(self.env, error) from None
        # An empty dsn here still hides one in a place that counts less.
        write_config(self._home, {**read_config(self._home), "dsn": "", **values})

    def check(self, wanted: Mapping[str, Any]) -> None:
        """Raise SettingsError when a setting is another now than was saved: another place wins over ours."""
        settings = load(self._home)
        for key, value in wanted.items():
            now = getattr(settings, key)
            if (now.get_secret_value() if key == "dsn" else now) != value:
                raise SettingsError(
                    f"{key} is set elsewhere, too, and that wins: take {ENV_PREFIX}{key.upper()} out of the "
                    "environment and `memory.pgvector` out of config.yaml, then run the set-up again"
                )

    def _forget(self, names: Collection[str]) -> None:
        """Take out of the environment what it has from the `.env`, which is about to change."""
        from dotenv import dotenv_values

        stored = dotenv_values(self.env, interpolate=False) if self.env.is_file() else {}
        for name in names:
            if name in os.environ and os.environ[name] == stored.get(name):
                self._environment[name] = os.environ.pop(name)


def write_config(home: Path, document: Mapping[str, Any]) -> None:
    """Put these settings in place of the saved ones, in a file of mode 0600. Raises SettingsError."""
    path = config_file(home)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, f"{json.dumps(document, indent=2)}\n".encode(), 0o600)
    except OSError as error:
        raise _unusable(path, error) from None


def change_env_file(path: Path, values: Mapping[str, str]) -> None:
    """Set variables in a `.env`, take away those with an empty value, and leave every other line as it is; mode 0600.

    Raises OSError, UnicodeDecodeError, and SettingsError for a value of several lines.
    """
    for name, value in values.items():
        if len(value.splitlines()) > 1 or "\0" in value:
            raise SettingsError(f"{name} holds a line break; nothing is saved")
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
        _write(path, "".join(f"{line}\n" for line in changed).encode(), 0o600)


def quoted(value: str) -> str:
    """A value as hosts, python-dotenv and shells read it from a `.env`."""
    if re.fullmatch(r"[\w@%+=:,./?&~-]*", value, re.ASCII):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def activate_in_host(config: MutableMapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Name this provider in the host's configuration, through the host, and leave what was saved to our own file."""
    from hermes_cli.config import save_config

    memory = config.get("memory")
    memory = config["memory"] = dict(memory) if isinstance(memory, Mapping) else {}
    memory["provider"] = link.NAME
    ours = memory.get(link.NAME)
    if isinstance(ours, Mapping):
        memory[link.NAME] = {key: value for key, value in ours.items() if key not in saved}
    save_config(config)


def activate(home: Path, saved: Mapping[str, Any]) -> bool:
    """Do so from outside the host: through its package when this Python has it, else through the `hermes` on the PATH.

    Returns False when there is no host to be found.
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
            [hermes, "config", "set", "memory.provider", link.NAME],
            env={**os.environ, "HERMES_HOME": str(home)}, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=ACTIVATE_S_MAX, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def exported(home: Path, keys: Collection[str]) -> list[str]:
    """Which of these settings the environment of this process has, and not from the `.env` of the home."""
    from dotenv import dotenv_values

    stored = dotenv_values(home / ".env", interpolate=False) if (home / ".env").is_file() else {}
    names = {key: f"{ENV_PREFIX}{key.upper()}" for key in keys}
    return [key for key, name in names.items() if os.environ.get(name) and os.environ[name] != stored.get(name)]


def _name_of(line: str) -> str:
    found = re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=", line)
    return found[1] if found else ""


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A `.env` may be a link to where the operator keeps it.
    path = path.resolve()
    fresh = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(content)
        fresh.chmod(mode)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _unusable(path: Path, error: Exception) -> SettingsError:
    reason = getattr(error, "strerror", None) or type(error).__name__
    return SettingsError(f"{path} cannot be used ({reason}): mend it, then try again")
