"""settings set and settings unset: one setting of a home."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import BadArgument, SettingsError
from ...hosts.config import read_config, variable
from ...settings import EARLIER, IN_HOST_CONFIG, SECRETS, given_values, load
from .. import configuration
from ..console import Console
from .listing import Setting, known, place_of, saved_forms, settings_of, text_of

LATER = "sessions that start from now on use it"


def change(home: Path, console: Console, args: argparse.Namespace) -> int:
    """The `settings set` command."""
    key = known(args.key)
    if key == "dsn":
        raise BadArgument("the address of the database is set by `hermes-pgvector setup`, which tries it")
    if key in SECRETS:
        raise BadArgument(f"it may contain a password: write {variable(key)} into {home / '.env'}")
    before = _present(home, key)
    try:
        value = checked(home, {key: args.value})[key]
    except SettingsError as error:
        load(home)  # raises for another one that is not valid, with its place
        raise BadArgument(str(error)) from None
    save(home, {key: value})
    after = next(setting for setting in settings_of(home) if setting.key == key)
    console.data({"key": key, "value": after.shown, "before": before and before.shown, "from": after.place})
    console.show(f"{key} = {text_of(after.shown)}")
    console.say(f"it was {f'{text_of(before.shown)} ({before.place})' if before else 'not valid'}; {LATER}")
    return 0


def _present(home: Path, key: str) -> Setting | None:
    """The setting as it is now; None when the settings are not valid, which the new value may mend."""
    try:
        return next(setting for setting in settings_of(home) if setting.key == key)
    except SettingsError:
        return None


def unset(home: Path, console: Console, args: argparse.Namespace) -> int:
    """The `settings unset` command."""
    key = known(args.key)
    if key == "dsn":
        raise BadArgument("the address of the database is set by `hermes-pgvector setup`, which tries it")
    with configuration.restored_on_error(home):
        configuration.change_variables(home, {variable(key): ""})
        saved = read_config(home)
        if key in saved:
            configuration.write_config(home, {name: value for name, value in saved.items() if name != key})
        load(home)
    after = next(setting for setting in settings_of(home) if setting.key == key)
    console.data({"key": key, "value": after.shown, "from": after.place})
    console.show(f"{key} = {text_of(after.shown)}")
    if after.place in ("default", EARLIER):
        console.say(f"that is the {after.place}; {LATER}")
        return 0
    console.say(f"it is still set: {after.place}; remove it there")
    return 1


def checked(home: Path, values: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The values as they are saved, when they are allowed beside the other settings of a home. Raises SettingsError."""
    given, _ = given_values(home, environ)
    forms = saved_forms(configuration.validated({**given, **values}))
    return {key: forms[key] for key in values if key in forms}


def save(
    home: Path, values: Mapping[str, Any], secrets: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Save settings of a home; everything is as it was after an error. Raises SettingsError that names what hides one.

    `secrets` are values of `.env` by variable. `environ` is the environment in which the settings must have an effect.
    """
    with configuration.restored_on_error(home):
        variables = {variable(key): "" for key in values}
        configuration.change_variables(home, {**variables, **(secrets or {})})
        configuration.write_config(home, {**read_config(home), **values})
        _check_places(home, values, environ)


def _check_places(home: Path, values: Mapping[str, Any], environ: Mapping[str, str] | None) -> None:
    given, origin = given_values(home, environ)
    # Two forms of a value are the same, such as 2 and 2.0.
    wanted = configuration.validated({**given, **values})
    found = configuration.validated(given)
    for key in values:
        if getattr(found, key) != getattr(wanted, key):
            place = place_of(home, key, origin)
            remedy = f"change {key} there"
            if origin.get(key) == IN_HOST_CONFIG:
                remedy = f"run: hermes config set {IN_HOST_CONFIG}.{key} VALUE"
            raise SettingsError(f"{place} takes precedence over what `settings` saves; {remedy}. Nothing is changed")
