"""settings copy: the settings of a home for other profiles."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import BadArgument, SettingsError
from ...files import expanded
from ...hosts.config import variable
from ...settings import EARLIER, SECRETS, given_values, load
from ..console import Console, counted, rows_table
from .change import checked, save
from .listing import known, saved_forms, settings_of, text_of

# Each home has its own.
OF_ONE_HOME = frozenset({"data_dir", "home_label", "spool_dir"})


class _Copy(NamedTuple):
    """What changes in a home: `rows` for people, `values` and `secrets` to save."""

    home: Path
    rows: list[dict[str, str]]
    values: dict[str, Any]
    secrets: dict[str, str]


def copy(home: Path, console: Console, args: argparse.Namespace) -> int:
    """The `settings copy` command."""
    _, origin = given_values(home)
    given = [key for key, place in origin.items() if key not in OF_ONE_HOME and place != EARLIER]
    keys = [known(key) for key in args.keys] or given
    own = sorted(OF_ONE_HOME & set(keys))
    if own:
        raise BadArgument(f"{' and '.join(own)} belong to one home and are not copied")
    targets = list(dict.fromkeys(home_of(home, name) for name in args.to))
    if home in targets:
        raise BadArgument(f"{home} is the home that is copied; name another one with --to")
    copies = [_planned(home, target, keys) for target in targets]
    changed = [each for each in copies if each.rows]
    for each in changed:
        console.show(f"{each.home}:", rows_table(each.rows))
    if not changed:
        console.say("nothing to copy: the settings are the same")
    elif not console.agreed(args, f"Change {counted(len(changed), 'home')}?"):
        return 1
    for each in changed:
        save(each.home, each.values, each.secrets, environ={})
    console.data([{"home": str(each.home), "changed": [row["Setting"] for row in each.rows]} for each in copies])
    return 0


def home_of(home: Path, name: str) -> Path:
    """The home of a profile, or of a folder. Raises BadArgument."""
    root = home.parent.parent if home.parent.name == "profiles" else home
    if "/" in name or name in (".", ".."):
        found = expanded(name).resolve()
    else:
        found = root if name == "default" else root / "profiles" / name
    if not found.is_dir():
        raise BadArgument(f"{found} is no folder; create the profile first: hermes profile create {name}")
    return found


def _planned(home: Path, target: Path, keys: list[str]) -> _Copy:
    source, theirs = load(home), load(target, {})
    before = {setting.key: setting.shown for setting in settings_of(target, {})}
    rows, values, secrets = [], {}, {}
    forms = saved_forms(source)
    for setting in settings_of(home):
        key = setting.key
        if key not in keys or getattr(source, key) == getattr(theirs, key):
            continue
        rows.append({"Setting": key, "Now": text_of(before[key]), "Then": text_of(setting.shown)})
        if key in SECRETS:
            secrets[variable(key)] = getattr(source, key).get_secret_value()
            if not secrets[variable(key)]:
                # An empty address overrides one in a place of lower precedence.
                values[key] = ""
        else:
            values[key] = forms[key]
    try:
        checked(target, values, {})
    except SettingsError as error:
        raise SettingsError(f"{target}: {error}") from None
    return _Copy(target, rows, values, secrets)
