"""scripts/demo passes its checks on both hosts, reports a check that fails, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Host

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def left_behind() -> set[Path]:
    return set(Path("/tmp").glob("hermes-pgvector-demo.*"))


@pytest.mark.main_host("a")
def test_the_demo_passes_its_checks_and_leaves_nothing_behind(host: Host, tmp_path: Path) -> None:
    before = left_behind()
    command = [SCRIPTS / "demo", f"host-{host.name}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "checks passed" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert left_behind() <= before
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_host_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HERMES_PGVECTOR_VENV": str(tmp_path / "venv")}
    done = subprocess.run([SCRIPTS / "demo", "nonsense"], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 2
    assert "usage: scripts/demo [host-a|host-b]" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def silent_homes(host: Host) -> Iterator[Path]:
    """A folder as scripts/demo prepares it, with homes that recall nothing before a turn."""
    folder = Path(tempfile.mkdtemp(prefix="hpg-homes", dir="/tmp"))
    folder.chmod(0o711)
    for name in ("atlas", "borealis"):
        (folder / name).mkdir()
        settings = f"    data_dir: {folder / 'postgres'}\n    prefetch_limit: 0\n"
        (folder / name / "config.yaml").write_text(f"memory:\n  provider: pgvector\n  pgvector:\n{settings}")
        assert host.run("hermes-pgvector", "install", home=folder / name).returncode == 0
    yield folder
    host.run("hermes-pgvector", "server", "stop", home=folder / "atlas")
    shutil.rmtree(folder)


@pytest.mark.parametrize("host", ["a"], indirect=True)
def test_the_demo_fails_with_a_message_when_a_check_fails(host: Host, silent_homes: Path) -> None:
    done = host.run(
        "python", str(SCRIPTS / "demonstration" / "demo.py"), str(silent_homes), home=silent_homes / "atlas"
    )
    assert done.returncode == 1
    assert "✗ check failed: the first memory is the entry from atlas" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
