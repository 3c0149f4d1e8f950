"""Where the databases of tests are kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY_BYTES_MIN = 2 << 30


def fast_folder() -> str:
    """/dev/shm where it has room, since a database for each test is mostly writing files; else /tmp."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MEMORY_BYTES_MIN
    return str(memory) if roomy else "/tmp"
