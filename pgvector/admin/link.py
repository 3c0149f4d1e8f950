"""install: the links in a home by which a host finds this package, and by which its gateway loads it in time."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ..errors import BadArgument, SettingsError, cure
from ..hosts.config import host_section
from ..hosts.environment import ACTIVATE
from .configuration import PROVIDER, active_provider
from .console import Console

ENTRY_POINTS = "hermes_agent.memory_providers"
HOOK = Path("hosts", "gateway_hook")


def install(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Link the package into the home, or with `--remove` delete the links; returns 0, also when nothing changed."""
    link, remove = place(home), args.remove
    changed = change(home, remove=remove)
    active = active_provider(home) == PROVIDER
    console.data(
        {"link": str(link), "package": str(package()), "linked": not remove, "changed": bool(changed), "active": active}
    )
    if remove:
        console.show("\n".join(f"removed {each}" for each in changed) or f"nothing to remove: {link} does not exist")
        if active:
            console.say("memory.provider is still pgvector; to turn it off: hermes memory off")
        return 0
    console.show("\n".join(f"linked {each} -> {each.resolve()}" for each in changed) or f"already installed: {link}")
    other = other_python()
    if other:
        console.say(f"note: hermes runs on another Python, {other}; install the packages there too")
    console.say("memory.provider is pgvector; next: hermes-pgvector doctor" if active else f"next: {ACTIVATE}")
    return 0


def change(home: Path, *, remove: bool = False) -> list[Path]:
    """Create the links in the home, or with `remove` delete them. Returns those that changed.

    Raises BadArgument as `due` does, and SettingsError when a folder cannot be written.
    """
    changes = due(home, remove=remove)
    for link, target in changes.items():
        _change(link, target, remove=remove)
    return list(changes)


def due(home: Path, *, remove: bool = False) -> dict[Path, Path]:
    """The links that `change` would create or delete, each with its target.

    Raises BadArgument when something else is in the place of one.
    """
    links = {place(home): package()}
    if _replaceable(hook(home)) if remove else needs_hook():
        links[hook(home)] = package() / HOOK
    changes = {link: target for link, target in links.items() if _differs(link, target, remove=remove)}
    for link in changes:
        if _there(link) and not _replaceable(link):
            raise BadArgument(f"{link} is not a link to this package; move it away, then try again")
    return changes


def _there(link: Path) -> bool:
    return link.is_symlink() or link.exists()


def _differs(link: Path, target: Path, *, remove: bool) -> bool:
    return _there(link) if remove else link.resolve() != target


def _change(link: Path, target: Path, *, remove: bool) -> None:
    try:
        if remove:
            link.unlink()
            return
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.symlink_to(target, target_is_directory=True)
        fresh.replace(link)
    except OSError as error:
        what = f"{link} cannot be changed ({error.strerror})"
        raise SettingsError(f"{what}; {cure(error, f'check {link.parent}')}") from None


def package() -> Path:
    """The folder of this package."""
    return Path(__file__).resolve().parent.parent


def place(home: Path) -> Path:
    """Where the host looks for the plugin in a home."""
    return home / "plugins" / PROVIDER


def linked(home: Path) -> bool:
    """Whether the plugin in the home is this package."""
    return place(home).resolve() == package()


def hook(home: Path) -> Path:
    """Where the host's gateway looks for the hook that loads the plugin."""
    return home / "hooks" / PROVIDER


def hook_linked(home: Path) -> bool:
    """Whether the hook in the home is that of this package."""
    return hook(home).resolve() == package() / HOOK


def needs_hook() -> bool:
    """Whether agents that begin at the same time may find no provider, unless the plugin is loaded before.

    Hosts that look for entry points load plugins under a lock. When no host is in this Python, it may be an older one.
    """
    return ENTRY_POINTS not in _loader()


def by_entry_point(home: Path) -> bool:
    """Whether the host in this Python finds the package by its entry point, without a link.

    Older hosts do not look for entry points, and hosts with `plugins.isolation: host` ignore them.
    """
    try:
        isolated = host_section(home, "plugins").get("isolation") == "host"
    except SettingsError:
        return False
    return bool(not isolated and not needs_hook() and metadata.entry_points(group=ENTRY_POINTS, name=PROVIDER))


def _loader() -> str:
    """The program text of the loader of the host in this Python; empty when there is none."""
    try:
        found = find_spec("plugins.memory")
    except ImportError:
        return ""
    return Path(found.origin).read_text(encoding="utf-8", errors="replace") if found and found.origin else ""


def other_python() -> Path | None:
    """The Python of the `hermes` command when it is not this one; None when it is, or is unknown."""
    hermes = shutil.which("hermes")
    found = python_of(Path(hermes)) if hermes else None
    return found if found and found.parent != Path(sys.executable).parent else None


def python_of(command: Path) -> Path | None:
    """The Python that the first lines of a command name; None when it cannot be read or names none."""
    try:
        with open(command, encoding="utf-8", errors="replace") as script:
            start = script.read(1000)
    except OSError:
        return None
    found = re.match(r"#!\s*(/\S*python[\d.]*)", start) or re.search(r"exec' '?\"?(/[^'\"\n]*python[\d.]*)", start)
    return Path(found[1]) if found else None


def _replaceable(link: Path) -> bool:
    """Whether it is a link to this package, to a copy of it in another Python, or to where one was."""
    target = link.resolve()
    if not link.is_symlink():
        return False
    if target.exists():
        return (target / "admin" / Path(__file__).name).is_file() or target.parts[-2:] == HOOK.parts
    return target.name in ("hermes_memory_pgvector", PROVIDER, HOOK.name)
