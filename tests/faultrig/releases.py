"""An earlier release out of the history of the repository, and agent processes of it and of this one."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes_memory_pgvector.store.schema.verification import LATEST

ROOT = Path(__file__).parents[2]
PACKAGE = "hermes_memory_pgvector"
# The commit whose version is 2.0.0, see CHANGELOG.md.
RELEASE_2_0_0 = "bd60a4b"


def release_2_0_0(folder: Path) -> Path:
    """Unpack release 2.0.0 into a folder for PYTHONPATH. Skips the test in a clone without its commit."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", RELEASE_2_0_0, "pgvector", "migrations"], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(
            f"the clone does not have commit {RELEASE_2_0_0} of release 2.0.0: {archive.stderr.decode().strip()}"
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (folder / "pgvector").rename(folder / PACKAGE)
    (folder / "migrations").rename(folder / PACKAGE / "migrations")
    return folder


def environment(path: Path | None, values: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process with these settings, of the release in `path` or of this one."""
    own = {"PYTHONPATH": str(path)} if path else {}
    return {**os.environ, **own, **{f"HERMES_PGVECTOR_{name.upper()}": value for name, value in values.items()}}


def command_line(
    path: Path | None, home: Path, values: Mapping[str, str], *arguments: str, typed: str = ""
) -> tuple[int, str]:
    """Run `hermes-pgvector` of a release; returns its exit code and output."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", PACKAGE, "--home", str(home), *arguments],
        env=environment(path, values), input=typed, capture_output=True, text=True, timeout=120, cwd="/",
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


class HookAgent:
    """One agent process of a home, with several sessions. Threads may call it; it runs one hook at a time."""

    def __init__(self, path: Path | None, home: Path, values: Mapping[str, str], log: Path | None = None) -> None:
        self._home, self._lock = home, threading.Lock()
        self._log = log.open("wb") if log else None
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("hook_agent.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd="/",
            env={**environment(path, values), "HERMES_HOME": str(home)},
        )  # fmt: skip

    def send(self, session: str, hook: str, *arguments: Any, **named: Any) -> None:
        """Call a hook and do not wait for its answer. The agent can be killed afterwards, and nothing else."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps([session, hook, arguments, named]) + "\n")
        self.process.stdin.flush()

    def call(self, session: str, hook: str, *arguments: Any, **named: Any) -> Any:
        assert self.process.stdout
        with self._lock:
            self.send(session, hook, *arguments, **named)
            return json.loads(self.process.stdout.readline())

    def begin(self, session: str, **identity: str) -> None:
        self.call(session, "initialize", session, hermes_home=str(self._home), agent_context="primary", **identity)

    def tool(self, session: str, name: str, **arguments: Any) -> Any:
        return json.loads(self.call(session, "handle_tool_call", name, arguments))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream:
                stream.close()

    def end(self) -> None:
        """End it as a host does; what is pending stays in its spool when that takes too long."""
        self.process.communicate(timeout=30)
        if self._log:
            self._log.close()


def next_release(folder: Path) -> tuple[Path, int]:
    """A copy of this release that knows one schema more, with a migration that ends the service for older clients.

    Returns its folder for PYTHONPATH, and the number of the schema.
    """
    number = LATEST + 1
    shutil.copytree(ROOT / "pgvector", folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "migrations", folder / PACKAGE / "migrations")
    verification = folder / PACKAGE / "store" / "schema" / "verification.py"
    verification.write_text(verification.read_text().replace(f"LATEST = {LATEST}\n", f"LATEST = {number}\n"))
    (folder / PACKAGE / "migrations" / f"{number:03}_next.sql").write_text(f"""
        BEGIN;
        LOCK TABLE hermes_pgvector_settings IN ACCESS EXCLUSIVE MODE;
        UPDATE hermes_pgvector_settings SET value = '{number}' WHERE name = 'oldest_client';
        INSERT INTO hermes_pgvector_migrations (version, name) VALUES ({number}, '{number:03}_next');
        COMMIT;
    """)
    return folder, number
