"""install: the link in a home's plugin folder by which a host finds this package."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ..errors import BadArgument, SettingsError
from ..hosts.config import host_section
from .configuration import ACTIVATE, PROVIDER, active_provider
from .console import Console

ENTRY_POINTS = "hermes_agent.memory_providers"


def install(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Link the package into the home, or with `--remove` delete it. Returns 0, also when nothing had to change."""
    link, remove = place(home), args.remove
    changed = change(home, remove=remove)
    active = active_provider(home) == PROVIDER
    console.data(
        {"link": str(link), "package": str(package()), "linked": not remove, "changed": changed, "active": active}
    )
    if remove:
        console.show(f"removed {link}" if changed else f"nothing to remove: {link} does not exist")
        if active:
            console.say("memory.provider is still pgvector; to turn it off: hermes memory off")
        return 0
    console.show(f"linked {link} -> {package()}" if changed else f"already installed: {link}")
    other = other_python()
    if other:
        console.say(f"note: hermes runs on another Python, {other}; install the packages there too")
    console.say("memory.provider is pgvector; next: hermes-pgvector doctor" if active else f"next: {ACTIVATE}")
    return 0


def change(home: Path, *, remove: bool = False) -> bool:
    """Create the link in the home, or with `remove` delete it. Returns whether that changed anything.

    Raises BadArgument when another plugin is in its place, and SettingsError when the folder cannot be written.
    """
    link = place(home)
    there = link.is_symlink() or link.exists()
    if (not there) if remove else linked(home):
        return False
    if there and not _replaceable(link):
        raise BadArgument(
            f"{link} is not a link to this package; move it away, or: hermes plugins remove {PROVIDER}; then try again"
        )
    try:
        if remove:
            link.unlink()
            return True
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.symlink_to(package(), target_is_directory=True)
        fresh.replace(link)
    except OSError as error:
        raise SettingsError(f"{link} cannot be changed ({error.strerror}); run as the owner of {home}") from None
    return True


def package() -> Path:
    """The folder of this package."""
    return Path(__file__).resolve().parent.parent


def place(home: Path) -> Path:
    """Where the host looks for the plugin in a home."""
    return home / "plugins" / PROVIDER


def linked(home: Path) -> bool:
    """Whether the plugin in the home is this package."""
    return place(home).resolve() == package()


def by_entry_point(home: Path) -> bool:
    """Whether the host in this Python finds the package by its entry point, without a link.

    Older hosts do not look for entry points, and hosts with `plugins.isolation: host` ignore them.
    """
    try:
        host = find_spec("plugins.memory")
        isolated = host_section(home, "plugins").get("isolation") == "host"
    except (ImportError, SettingsError):
        return False
    if isolated or host is None or host.origin is None or not metadata.entry_points(group=ENTRY_POINTS, name=PROVIDER):
        return False
    return ENTRY_POINTS in Path(host.origin).read_text(encoding="utf-8", errors="replace")


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
        return (target / "admin" / Path(__file__).name).is_file()
    return target.name in ("hermes_memory_pgvector", PROVIDER)
