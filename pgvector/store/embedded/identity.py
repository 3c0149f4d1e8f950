"""Which database a home uses: when its data folder is lost, the server makes a new one, which must not go unnoticed."""

from __future__ import annotations

import logging
import re
import shlex
from contextlib import suppress
from pathlib import Path

from ...files import read_matching, read_or_create

log = logging.getLogger("hermes.pgvector")

FILE = "embedded_database"
_ID = re.compile(r"\d{1,20}")


def note(state: Path, data: Path) -> None:
    """Remember, in the home's folder `state`, the database in the data folder; log when it is not that of before."""
    with suppress(OSError):
        if identifier := _identifier(data):
            read_or_create(state / FILE, identifier, _ID)
        if lost := replaced(state, data):
            log.warning("%s; see: hermes-pgvector doctor", lost)


def replaced(state: Path, data: Path) -> str:
    """That the database in the data folder is not the one that this home used before; empty when it is."""
    with suppress(OSError):
        before, identifier = read_matching(state / FILE, _ID), _identifier(data)
        if before and before != identifier:
            if other := _folder_of(before, data):
                return f"the database that this home used before is in {other}, not in {data}"
            if identifier:
                return f"the database in {data} was made anew, and what this home stored before it is not in it"
            if not data.exists():
                return f"the database that this home used before is not in {data} any more"
    return ""


def absent(state: Path, data: Path) -> str:
    """Why there is no data folder, and what to do, where the home had a database; empty where it had none."""
    lost = "" if data.exists() else replaced(state, data)
    return f"{lost}; {remedy(state, data)}" if lost else ""


def remedy(state: Path, data: Path) -> str:
    """What to do where `replaced` says something."""
    with suppress(OSError):
        if other := _folder_of(read_matching(state / FILE, _ID), data):
            return (
                "a home that is moved or renamed gets another folder; unless this is a copy, use the one before: "
                f"hermes-pgvector settings set data_dir {shlex.quote(str(other.parent))}"
            )
    if not data.exists():
        return "mount its disk, or restore a backup (docs/hosts.md); the next session makes a new, empty database there"
    return (
        "restore a backup (docs/hosts.md), and set data_dir to a folder that is kept; to go on with the new one: "
        f"rm {shlex.quote(str(state / FILE))}"
    )


def _folder_of(identifier: str, data: Path) -> Path | None:
    """The data folder, beside this one, of the database with an identifier. Raises OSError."""
    folders = data.parents[1].glob(f"*/{data.name}")
    return next((other for other in folders if other != data and _identifier(other) == identifier), None)


def _identifier(data: Path) -> str:
    """The number that Postgres gave the database when it made it; empty when it cannot be read."""
    with suppress(OSError), (data / "global" / "pg_control").open("rb") as file:
        return str(int.from_bytes(file.read(8), "little"))
    return ""
