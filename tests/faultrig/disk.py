"""A file system of a few kibibytes or megabytes, which a test can fill."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BLOCK = b"x" * 4096


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """A folder that is a file system of this size. Skips the test where it cannot be mounted."""
    folder = Path(tempfile.mkdtemp(prefix="hpd"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("needs root, to mount a tiny disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        # A process that still writes there makes its folders anew.
        shutil.rmtree(folder)


def fill(disk: Path) -> Path:
    """Leave no free block; returns the file to delete when there is to be room again."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(BLOCK) == len(BLOCK):
            pass
    return filler
