"""A Postgres of a test's own, to be stopped, frozen and started."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hermes_memory_pgvector.store.embedded import EmbeddedServer
from hermes_memory_pgvector.store.schema import migrate


@contextmanager
def own_postgres() -> Iterator[EmbeddedServer]:
    """A migrated server for vectors of 384 numbers; connecting does not start it."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="hpf", dir=memory if os.access(memory, os.W_OK) else "/tmp"))
    folder.chmod(0o711)
    server = EmbeddedServer(folder / "home", str(folder / "server"))
    try:
        server.ensure_running()
        migrate(server.dsn, dimensions=384)
        yield server
    finally:
        server.stop(mode="immediate")
        shutil.rmtree(folder, ignore_errors=True)


def freeze(server: EmbeddedServer) -> list[int]:
    """Stop all processes of the server in their tracks: it neither answers nor refuses. Returns them, for `thaw`."""
    postmaster = server.status().pid
    assert postmaster is not None
    os.kill(postmaster, signal.SIGSTOP)
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    frozen = [postmaster, *map(int, children)]
    for pid in frozen[1:]:
        _signal(pid, signal.SIGSTOP)
    return frozen


def thaw(frozen: list[int]) -> None:
    """Let them go on."""
    for pid in reversed(frozen):
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
