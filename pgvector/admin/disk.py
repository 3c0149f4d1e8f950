"""The free space on a disk of this host, as `status` and `doctor` show it."""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.filesize import decimal as size

from ..files import HOST_DISK_FULL
from .check import Check

FREE_BYTES_FULL = 64 << 10
FREE_BYTES_MIN = 100 << 20
FREE_BYTES_LOW = 1 << 30


def disk(name: str, folder: Path) -> Check:
    """Whether the disk of a folder has enough free space."""
    try:
        free = shutil.disk_usage(existing(folder)).free
    except OSError as error:
        return Check(name, "warning", f"{folder}: {error.strerror}", "check the disk by hand")
    found = f"{size(free)} free for {folder}"
    if free < FREE_BYTES_FULL:
        found = f"{HOST_DISK_FULL}: {found}"
    elif free < FREE_BYTES_MIN:
        found = f"only {found}"
    if free < FREE_BYTES_MIN:
        return Check(name, "problem", found, "free some space: events that do not fit on the disk are refused")
    if free < FREE_BYTES_LOW:
        return Check(name, "warning", found, "free some space")
    return Check(name, "ok", found)


def existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())
