"""Where this package was installed from: on PyPI, its name belongs to an earlier package."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path

NAME = "hermes-memory-pgvector"
PACKAGE = "hermes_memory_pgvector"
NEEDED_PACKAGES = ("cachetools", "psycopg", "psycopg_pool", "pgvector", "httpx", "numpy")
UNKNOWN = "in a clone of its repository, as the README says"


def missing_packages() -> str:
    """Which of the needed packages are missing, and what to type; empty when none is."""
    missing = [package for package in NEEDED_PACKAGES if importlib.util.find_spec(package) is None]
    return f"missing packages: {', '.join(missing)}; run: {pip_install()}" if missing else ""


def pip_install(extra: str = "", python: str = "") -> str:
    """The pip command that installs this package, for another `python` if one is given."""
    pip = f"{shlex.quote(python)} -m pip install" if python else "pip install"
    folder = _source()
    wanted = f"[{extra}]" if extra else ""
    return f"{pip} {shlex.quote(f'{folder}{wanted}')}" if folder else f"{pip} {shlex.quote(f'.{wanted}')}, {UNKNOWN}"


def upgrade() -> str:
    """How a newer release of this package is installed."""
    return f"{pip_install()}, after `git pull` there, and restart the agents"


def namesake() -> str:
    """The version of the other project of this name, when pip has installed that one in this Python; else empty."""
    from importlib import metadata

    try:
        found = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:
        return ""
    return "" if any(point.module.startswith(PACKAGE) for point in found.entry_points) else found.version


def replacement(python: str = "") -> str:
    """The commands that put this package in the place of the other project, for another `python` if one is given."""
    pip = f"{shlex.quote(python)} -m pip" if python else "pip"
    return f"{pip} uninstall -y {NAME}; then: {pip_install(python=python)}; then: hermes-pgvector install"


def _source() -> Path | None:
    """The clone with this file, else the folder that pip installed the package from, if it still exists."""
    folders = [Path(__file__).resolve().parents[2], *_folder_of_pip()]
    return next((folder for folder in folders if (folder / "pyproject.toml").is_file()), None)


def _folder_of_pip() -> list[Path]:
    # Hosts import this module when they look for plugins, and these modules take long to import.
    import json
    from importlib import metadata
    from urllib.parse import unquote, urlsplit

    try:
        url = json.loads(metadata.distribution(NAME).read_text("direct_url.json") or "{}").get("url", "")
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return []
    return [Path(unquote(urlsplit(url).path))] if url.startswith("file://") else []
