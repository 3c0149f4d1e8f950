"""settings project: the theme of a working folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...errors import BadArgument, SettingsError
from ...files import expanded, overwrite
from ...hosts.environment import profile_name
from ...session.identity import Identity
from ...session.project import NAME_FILE, checkout_of, project_of
from ...session.themes import templated_theme
from ...settings import load
from ...text.sanitize import safe_line
from ...text.theme_names import segment
from ..console import Console, facts_table

TEMPLATE = "project/{project}"


def project(home: Path, console: Console, args: argparse.Namespace) -> int:
    """The `settings project` command."""
    folder = expanded(args.folder).resolve()
    if not folder.is_dir():
        raise BadArgument(f"{folder} is no folder")
    if args.name:
        _save(checkout_of(folder) or folder, args.name, console)
    settings, name = load(home), project_of(folder)
    identity = Identity(agent_identity=profile_name(home), platform="cli", project=name)
    theme = templated_theme(identity, settings)
    console.data({"folder": str(folder), "project": name, "theme": theme, "theme_template": settings.theme_template})
    shown = safe_line(name, 120) or "none: in no git repository, and without a name"
    console.show(facts_table([("Folder", str(folder)), ("Project", shown), ("Theme", theme)]))
    if "{project}" not in settings.theme_template:
        console.say(f"projects have no themes of their own yet: hermes-pgvector settings set theme_template {TEMPLATE}")
    return 0


def _save(folder: Path, name: str, console: Console) -> None:
    if not segment(name) or len(name.splitlines()) > 1:
        raise BadArgument(f"{name[:60]!r} cannot name a project: it must be one line with a letter or a digit")
    path = folder / NAME_FILE
    try:
        overwrite(path, f"{name.strip()}\n")
        path.chmod(0o644)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written ({error.strerror})") from None
    console.say(f"saved in {path}; commit it to share the name")
