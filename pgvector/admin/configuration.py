"""Saved settings of a home: secrets in `.env`, others in `pgvector/config.json`, the provider in the host's config.

A setting that is saved is removed from the places that take precedence.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..errors import SettingsError, cure
from ..files import make_private, overwrite
from ..hosts.config import ENV_PREFIX, config_file, env_values, host_section, read_config, variable
from ..mirror.home import begin
from ..settings import Settings, load
from ..text.setting_values import part, reason

PROVIDER = "pgvector"
ACTIVATE_S_MAX = 60


@contextmanager
def restored_on_error(home: Path) -> Iterator[None]:
    """Restore the environment and the files with settings when the block raises anything.

    Raises SettingsError when a file cannot be read.
    """
    before = {path: _content(path) for path in (home / ".env", config_file(home), home / "config.yaml")}
    with ExitStack() as stack:
        stack.callback(_restore, before, dict(os.environ))
        yield
        stack.pop_all()


def _restore(files: Mapping[Path, tuple[str, int] | None], environment: Mapping[str, str]) -> None:
    for path, content in files.items():
        if content is None:
            path.unlink(missing_ok=True)
        elif _content(path) != content:
            overwrite(path.resolve(), content[0])
            path.chmod(content[1])
    os.environ.update(environment)


def save(home: Path, values: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
    """Save settings by key, and secrets by variable name; an empty secret is removed. Raises SettingsError."""
    change_variables(home, {**{variable(key): "" for key in values}, **secrets})
    # An empty dsn overrides one in a place of lower precedence.
    write_config(home, {**read_config(home), "dsn": "", **values})


def change_variables(home: Path, variables: Mapping[str, str]) -> None:
    """Set variables in the `.env` of a home, and remove those with an empty value. Raises SettingsError."""
    stored = env_values(home)
    for name in variables:
        # Hosts and commands put the lines of the `.env`, which is about to change, into the environment.
        if name in os.environ and os.environ[name] == stored.get(name):
            del os.environ[name]
    try:
        change_env_file(home / ".env", variables)
    except (OSError, ValueError) as error:
        raise _unusable(home / ".env", error) from None


def check_saved(home: Path, values: Mapping[str, Any]) -> None:
    """Raise SettingsError when saved settings have no effect, because another place takes precedence."""
    settings = load(home)
    hidden = [key for key, value in values.items() if getattr(settings, key) != value]
    if hidden:
        raise SettingsError(
            f"`memory.pgvector` of config.yaml or a variable {ENV_PREFIX}… of the environment takes precedence over "
            f"what was saved; remove there: {', '.join(hidden)}"
        )


def write_config(home: Path, document: Mapping[str, Any]) -> None:
    """Replace the saved settings; the file gets mode 0600. Raises SettingsError."""
    path = config_file(home)
    try:
        begin(home)
        make_private(path.parent)
        overwrite(path.resolve(), f"{json.dumps(document, indent=2)}\n")
    except OSError as error:
        raise _unusable(path, error) from None


def validated(values: Mapping[str, Any]) -> Settings:
    """Settings with these values. Raises SettingsError that names each wrong key, and no value."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        wrong = (f"{each['loc'][0]}{part(each)}: {reason(each)}" for each in error.errors())
        raise SettingsError("; ".join(wrong)) from None


def change_env_file(path: Path, values: Mapping[str, str]) -> None:
    """Set variables in a `.env` and remove those with an empty value. Other lines stay; the file gets mode 0600.

    Raises OSError, UnicodeDecodeError, and SettingsError for a value of several lines or with `${`.
    """
    for name, value in values.items():
        if len(value.splitlines()) > 1 or "\0" in value:
            raise SettingsError(f"{name} contains a line break; nothing is saved")
        if "${" in value:
            raise SettingsError(f"{name} contains ${{, which hosts fill in when they read .env; nothing is saved")
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


def activate_in_host(config: MutableMapping[str, Any], saved: Mapping[str, Any], provider: str = PROVIDER) -> None:
    """Set `memory.provider` in the host's configuration, remove the `saved` settings, and save it."""
    from hermes_cli.config import save_config

    memory = config.get("memory")
    memory = config["memory"] = dict(memory) if isinstance(memory, Mapping) else {}
    memory["provider"] = provider
    section = memory.get(PROVIDER)
    if isinstance(section, Mapping):
        memory[PROVIDER] = {key: value for key, value in section.items() if key not in saved}
    save_config(config)


def activate(home: Path, saved: Mapping[str, Any], provider: str = PROVIDER) -> bool:
    """Set `memory.provider` by the host's package when this Python has it, else by the `hermes` command.

    Empty, the host uses its own memory only. Returns False when there is no host.
    """
    try:
        from hermes_cli.config import load_config
        from hermes_constants import reset_hermes_home_override, set_hermes_home_override
    except ImportError:
        return _activate_by_command(home, provider)
    token = set_hermes_home_override(home)
    try:
        activate_in_host(load_config(), saved, provider)
    finally:
        reset_hermes_home_override(token)
    return True


def _activate_by_command(home: Path, provider: str) -> bool:
    hermes = shutil.which("hermes")
    if hermes is None:
        return False
    # Hosts go from the home above the profiles to the one of `hermes profile use`, unless they are told a profile.
    profile = ["--profile", "default"] if (home / "active_profile").exists() else []
    try:
        done = subprocess.run(
            [hermes, *profile, "config", "set", "memory.provider", provider],
            env={**os.environ, "HERMES_HOME": str(home)}, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=ACTIVATE_S_MAX, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def not_saved(home: Path, provider: str) -> SettingsError:
    """The error when the host did not save `memory.provider`, and what to do."""
    return SettingsError(f"the host did not save memory.provider; set it to {provider!r} in {home / 'config.yaml'}")


def active_provider(home: Path) -> str:
    """`memory.provider` in the home's config.yaml; empty when it is not set. Raises SettingsError."""
    return str(host_section(home, "memory").get("provider") or "")


def exported(home: Path, keys: Collection[str]) -> list[str]:
    """Those of these settings that the environment has, and not from the `.env` of the home."""
    stored = env_values(home)
    names = {key: variable(key) for key in keys}
    return [key for key, name in names.items() if os.environ.get(name) and os.environ[name] != stored.get(name)]


def _name_of(line: str) -> str:
    found = re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=", line)
    return found[1] if found else ""


def _content(path: Path) -> tuple[str, int] | None:
    """The text of a file and its mode; None when there is none."""
    try:
        return path.read_bytes().decode(), path.stat().st_mode & 0o777
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: Exception) -> SettingsError:
    reason = getattr(error, "strerror", None) or type(error).__name__
    return SettingsError(f"{path} cannot be used ({reason}): {cure(error, 'fix it')}, then try again")


def without_secrets(url: str) -> str:
    """The URL without user, password and query, each of which may hold a secret."""
    scheme, _, rest = url.partition("://")
    address = re.split("[?#]", rest)[0]
    if "@" in rest[len(address) :]:
        return f"{scheme}://… (its password or key is not percent-encoded)"
    return f"{scheme}://{address.rpartition('@')[2]}"
