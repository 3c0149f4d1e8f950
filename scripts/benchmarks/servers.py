"""Servers that last for one run: a throw-away Postgres, and child processes that print their address."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from hermes_memory_pgvector.store.embedded.server import EmbeddedServer

# For data that is filled once and only read. It makes loading faster and leaves the times of queries as they are.
UNSYNCED = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_wal_size": "1GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


@contextmanager
def throwaway_postgres(memory_bytes: int = 0, **options: str) -> Iterator[EmbeddedServer]:
    """A running embedded Postgres with these server options in addition to its own. It is deleted afterwards.

    Its files are in /dev/shm when `memory_bytes` is positive and fits there, else in the folder for temporary files.
    """
    memory = Path("/dev/shm")
    in_memory = memory_bytes > 0 and memory.is_dir() and shutil.disk_usage(memory).free > memory_bytes
    with tempfile.TemporaryDirectory(prefix="hermes-pgvector-run-", dir=memory if in_memory else None) as folder:
        # For root, Postgres runs under another account, which must reach its data.
        os.chmod(folder, 0o711 if os.geteuid() == 0 else 0o700)
        server = EmbeddedServer(folder, str(Path(folder, "postgres")))
        try:
            server.ensure_running()
            if options:
                _restart_with(server, options)
            yield server
        finally:
            server.stop(mode="immediate")


@contextmanager
def kept_postgres(folder: Path, **options: str) -> Iterator[EmbeddedServer]:
    """A running embedded Postgres in this folder, with these server options alone; its files stay."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chmod(folder, 0o711 if os.geteuid() == 0 else 0o700)
    server = EmbeddedServer(str(folder), str(folder / "postgres"))
    try:
        server.ensure_running()
        _restart_with(server, options)
        yield server
    finally:
        server.stop(timeout_s=300)


def _restart_with(server: EmbeddedServer, options: dict[str, str]) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("alter system reset all")
        for name, value in options.items():
            connection.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    server.stop()
    server.ensure_running()


class ServerProcess:
    """A child process that prints its address as its first line and answers a line on stdin with a line."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process, self.address, self.pid = process, address, process.pid

    def tell(self, line: str) -> str:
        """Send a line and return the answer."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def controlled_process(command: Sequence[str | Path], **options: Any) -> Iterator[ServerProcess]:
    """Start a server and kill it at the end of the block. The options are those of `Popen`.

    The child has a pipe as stdin and should end when that closes, which it does when this process dies. Raises
    RuntimeError when the child ends before it prints an address.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options) as process:
        assert process.stdout
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError(f"the server did not start: {' '.join(map(str, command))}")
            yield ServerProcess(process, address)
        finally:
            process.kill()


@contextmanager
def server_process(command: Sequence[str | Path]) -> Iterator[str]:
    """Start a server as `controlled_process` does; gives its address."""
    with controlled_process(command) as server:
        yield server.address
