"""The checks of one host for whoever wants to publish a plugin."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Host

PACKAGE = Path(__file__).resolve().parents[2] / "pgvector"


@pytest.mark.parametrize("host", ["b"], indirect=True)
@pytest.mark.parametrize("gate", ["validate", "doctor"])
def test_the_folder_passes_the_gate(host: Host, home: Path, gate: str) -> None:
    copy = home / "pgvector"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    done = host.run("hermes", "plugins", gate, str(copy), home=home)
    assert done.returncode == 0, done.stdout
