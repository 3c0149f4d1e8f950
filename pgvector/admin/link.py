"""install: the link by which the host finds this package in a home."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ..errors import BadArgument, SettingsError
from ..settings import host_section
from .console import Console

NAME = "pgvector"
ENTRY_POINTS = "hermes_agent.memory_providers"
ACTIVATE = f"hermes config set memory.provider {NAME}"


def install(home: Path, console: Console, *, remove: bool = False) -> int:
    """Link the package into the home, or take the link away again. Does nothing when that is done already."""
    link = place(home)
    try:
        changed = _unlink(link) if remove else _link(link)
    except OSError as error:
        raise SettingsError(f"{link} cannot be changed ({error.strerror}); run as the owner of {home}") from None
    active = active_provider(home) == NAME
    console.data(
        {"link": str(link), "package": str(package()), "linked": not remove, "changed": changed, "active": active}
    )
    if remove:
        console.show(f"removed {link}" if changed else f"nothing to remove: {link} does not exist")
        if active:
            console.say("memory.provider still names it; turn it off with: hermes memory off")
        return 0
    console.show(f"linked {link} -> {package()}" if changed else f"already installed: {link}")
    other = other_python()
    if other:
        console.say(f"note: hermes runs on {other}, which is not this Python; the packages must be installed there too")
    console.say("the provider is active; next: hermes-pgvector doctor" if active else f"next: {ACTIVATE}")
    return 0


def ensure(home: Path) -> bool:
    """Link the package unless the home has it; whether that changed anything. Raises BadArgument and SettingsError."""
    try:
        return not linked(home) and _link(place(home))
    except OSError as error:
        raise SettingsError(f"{place(home)} cannot be made ({error.strerror}); run as the owner of {home}") from None


def package() -> Path:
    """The folder of this package."""
    return Path(__file__).resolve().parent.parent


def place(home: Path) -> Path:
    """Where the host looks for the plugin in a home."""
    return home / "plugins" / NAME


def linked(home: Path) -> bool:
    """Whether the host finds this very package in the home."""
    return place(home).resolve() == package()


def active_provider(home: Path) -> str:
    """`memory.provider` of the home's config.yaml; empty when it names none. Raises SettingsError."""
    return str(host_section(home, "memory").get("provider") or "")


def by_entry_point(home: Path) -> bool:
    """Whether a host in this Python finds the package without a link: only newer ones do, and none that isolates it."""
    try:
        host = find_spec("plugins.memory")
        isolated = host_section(home, "plugins").get("isolation") == "host"
    except (ImportError, SettingsError):
        return False
    if isolated or host is None or host.origin is None or not metadata.entry_points(group=ENTRY_POINTS, name=NAME):
        return False
    return ENTRY_POINTS in Path(host.origin).read_text(encoding="utf-8", errors="replace")


def other_python() -> Path | None:
    """The Python of the `hermes` on the PATH, when it is another than ours; None too when it cannot be told."""
    hermes = shutil.which("hermes")
    if hermes is None:
        return None
    try:
        with open(hermes, encoding="utf-8", errors="replace") as script:
            start = script.read(1000)
    except OSError:
        return None
    found = re.match(r"#!\s*(/\S*python[\d.]*)", start) or re.search(r"exec' '?\"?(/[^'\"\s]*python[\d.]*)", start)
    return Path(found[1]) if found and Path(found[1]).parent != Path(sys.executable).parent else None


def _link(link: Path) -> bool:
    if link.is_symlink():
        if link.resolve() == package():
            return False
        if not _ours(link):
            raise BadArgument(
                f"{link} links to {os.readlink(link)}, which is not ours; move it away, then install again"
            )
    elif link.resolve() == package():
        return False
    elif link.exists():
        raise BadArgument(f"{link} is there and is no link of ours; move it away, then install again")
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.symlink_to(package(), target_is_directory=True)
    fresh.replace(link)
    return True


def _unlink(link: Path) -> bool:
    if not link.is_symlink():
        if link.exists():
            raise BadArgument(f"{link} is no link of ours; remove it by hand, or with: hermes plugins remove {NAME}")
        return False
    if not _ours(link):
        raise BadArgument(f"{link} links to {os.readlink(link)}, which is not ours; remove it by hand")
    link.unlink()
    return True


def _ours(link: Path) -> bool:
    """Whether it links to this package, here or of another Python, or to where one was."""
    target = link.resolve()
    if target.exists():
        return (target / "admin" / Path(__file__).name).is_file()
    return target.name in ("hermes_memory_pgvector", NAME)
