"""settings list and settings get: values, and the place that each comes from."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr

from ...errors import BadArgument
from ...hosts.config import ENV_PREFIX, variable
from ...settings import EARLIER, IN_ENVIRONMENT, IN_HOST_CONFIG, SECRETS, Settings, given_values, load
from ...store.connection.dsn import describe
from ..configuration import exported, without_secrets
from ..console import Console, rows_table


class Setting(NamedTuple):
    """A setting as it applies; `shown` holds no secret, `place` is `default` where nothing is set."""

    key: str
    shown: Any
    place: str
    description: str


def settings_of(home: Path, environ: Mapping[str, str] | None = None) -> list[Setting]:
    """All settings of a home, by default in the environment of this process. Raises SettingsError."""
    values, (_, origin) = load(home, environ), given_values(home, environ)
    return [
        Setting(key, _shown(key, values), place_of(home, key, origin), field.description or "")
        for key, field in Settings.model_fields.items()
    ]


def place_of(home: Path, key: str, origin: Mapping[str, str]) -> str:
    """The place of a setting, as an operator would look for it. `origin` is that of `given_values`."""
    place = origin.get(key, "default")
    if place == IN_ENVIRONMENT:
        return variable(key) if exported(home, [key]) else str(home / ".env")
    return f"{IN_HOST_CONFIG} in {home / 'config.yaml'}" if place == IN_HOST_CONFIG else place


def known(key: str) -> str:
    """The key, if there is such a setting. Raises BadArgument that names the nearest ones."""
    key = key.strip().lower().removeprefix("memory.pgvector.").removeprefix(ENV_PREFIX.lower())
    if key in Settings.model_fields:
        return key
    near = get_close_matches(key, Settings.model_fields, 3)
    advice = f"did you mean {' or '.join(near)}?" if near else "see: hermes-pgvector settings list --all"
    raise BadArgument(f"{key[:60]!r} is no setting; {advice}")


def show_all(home: Path, console: Console, args: argparse.Namespace) -> int:
    """The `settings list` command."""
    found = [setting for setting in settings_of(home) if args.all or setting.place not in ("default", EARLIER)]
    console.data(
        [{"key": each.key, "value": each.shown, "from": each.place, "description": each.description} for each in found]
    )
    if found:
        console.show(
            rows_table([{"Setting": each.key, "Value": text_of(each.shown), "From": each.place} for each in found])
        )
    else:
        console.say("all settings have their defaults; to see these: hermes-pgvector settings list --all")
    return 0


def get(home: Path, console: Console, args: argparse.Namespace) -> int:
    """The `settings get` command."""
    key = known(args.key)
    found = next(setting for setting in settings_of(home) if setting.key == key)
    console.data({"key": key, "value": found.shown, "from": found.place, "description": found.description})
    console.show(text_of(found.shown))
    console.say(f"{found.description} ({found.place})")
    return 0


def text_of(value: Any) -> str:
    """A value as a person writes it on the command line."""
    if value is None or value == "":
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def saved_forms(values: Settings) -> dict[str, Any]:
    """All settings but `SECRETS` as JSON has them, rules without the parts that they do not name."""
    every = values.model_dump(mode="json", exclude=set(SECRETS))
    return every | values.model_dump(mode="json", exclude=set(SECRETS), exclude_defaults=True)


def _shown(key: str, values: Settings) -> Any:
    value = getattr(values, key)
    if isinstance(value, SecretStr):
        return describe(value.get_secret_value()) if value.get_secret_value() else ""
    if key.endswith("_url") and value:
        return without_secrets(value)
    return saved_forms(values)[key]
