"""A Postgres for one test, which may stop, freeze and start it."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from waiting import wait_for

from hermes_memory_pgvector.store.embedded.server import EmbeddedServer
from hermes_memory_pgvector.store.schema.migrations import migrate

# Removes a segment, in shmctl(2).
IPC_RMID = 0


@contextmanager
def own_postgres(disk: Path | None = None) -> Iterator[EmbeddedServer]:
    """A migrated server for vectors of 384 numbers, with its files on this disk; connecting does not start it."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="hpf", dir=disk or (memory if os.access(memory, os.W_OK) else "/tmp")))
    folder.chmod(0o711)
    server = EmbeddedServer(folder / "home", str(folder / "server"))
    try:
        server.ensure_running()
        migrate(server.dsn, dimensions=384)
        yield server
    finally:
        server.stop(mode="immediate")
        shutil.rmtree(folder, ignore_errors=True)


def kill_at_once(data: Path) -> None:
    """Kill all processes of the server of a data folder, as a power loss of its machine does: shared memory goes, too.

    Postgres removes what is left of it when the same data folder is started again, which a test may not do.
    """
    pid_file = (data / "postmaster.pid").read_text().splitlines()
    postmaster, segment = int(pid_file[0]), int(pid_file[6].split()[1])
    os.kill(postmaster, signal.SIGSTOP)
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text()
    pids = (postmaster, *map(int, children.split()))
    shared = {path for pid in pids for path in shared_memory(pid)}
    for pid in pids:
        _signal(pid, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{postmaster}").exists())
    for path in shared:
        path.unlink(missing_ok=True)
    ctypes.CDLL(None).shmctl(segment, IPC_RMID, None)


def shared_memory(pid: int) -> set[Path]:
    """The files in shared memory that a process of Postgres has mapped."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return {Path(name) for name in re.findall(r"/dev/shm/PostgreSQL\.\d+", Path(f"/proc/{pid}/maps").read_text())}
    return set()


def freeze(server: EmbeddedServer) -> list[int]:
    """Suspend all processes of the server, so that it neither answers nor refuses. Returns their ids for `thaw`."""
    postmaster = server.status().pid
    assert postmaster is not None
    os.kill(postmaster, signal.SIGSTOP)
    frozen = [postmaster]
    quiet = 0
    # The kernel leaves some out of the list while another child ends.
    while quiet < 3:
        listed = map(int, Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split())
        fresh = [pid for pid in listed if pid not in frozen]
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        frozen += fresh
        quiet = 0 if fresh else quiet + 1
        time.sleep(0.01)
    return frozen


def thaw(frozen: list[int]) -> None:
    """Continue suspended processes."""
    for pid in reversed(frozen):
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
