"""The server on stdin and stdout, for one client that started it."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel

from . import sdk
from .handlers import Handlers

LINE_BYTES_MAX = 8 << 20
_CHUNK_BYTES = 1 << 16


def serve(handlers: Handlers) -> None:
    """Answer the client until it closes stdin or goes away, or SIGTERM or SIGINT comes."""
    # What else is written to stdout would break the protocol; child processes must not hold the client's pipes.
    reading, writing = _moved(0, os.open(os.devnull, os.O_RDONLY)), _moved(1, os.dup(2))
    anyio.run(_serve, handlers, reading, writing)


async def _serve(handlers: Handlers, reading: int, writing: int) -> None:
    from mcp.server.stdio import stdio_server

    made = handlers.server()
    pipes: Any = _Lines(reading), _Output(writing)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_by_signal, tasks.cancel_scope)
            tasks.start_soon(handlers.wake)
            async with stdio_server(*pipes) as (received, sent):
                await made.run(received, sent, made.create_initialization_options())
            tasks.cancel_scope.cancel()
    except* (BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the client went away before it had its answers


async def _end_by_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


def _moved(fd: int, substitute: int) -> int:
    """A duplicate of a standard stream, in whose place `substitute` is put."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(substitute, fd)
    os.close(substitute)
    return moved


class _Lines:
    """The lines of a pipe. Unlike a thread that reads, waiting for one can be cancelled. A longer line is left out."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def __aiter__(self) -> AsyncIterator[str]:
        line, skipping = bytearray(), False
        while chunk := await self._chunk():
            *ended, rest = chunk.split(b"\n")
            for part in ended:
                line += part
                if line.strip() and not skipping:
                    yield sdk.storable(bytes(line)).decode("utf-8", "replace")
                line, skipping = bytearray(), False
            line += rest
            if len(line) > LINE_BYTES_MAX:
                if not skipping:
                    print(f"a message of more than {LINE_BYTES_MAX} bytes is left out", file=sys.stderr)
                line, skipping = bytearray(), True

    async def _chunk(self) -> bytes:
        await _ready(anyio.wait_readable, self._fd)
        return os.read(self._fd, _CHUNK_BYTES)


class _Output:
    """Writes to a pipe. Waiting for a client that does not read can be cancelled, too."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def write(self, text: str) -> None:
        left = memoryview(text.encode("utf-8", "replace"))
        while left:
            await _ready(anyio.wait_writable, self._fd)
            # So many bytes a pipe takes at once when it takes any.
            left = left[os.write(self._fd, left[: select.PIPE_BUF]) :]

    async def flush(self) -> None:
        """Nothing is kept back."""


async def _ready(wait: Callable[[int], Awaitable[None]], fd: int) -> None:
    try:
        await wait(fd)
    except PermissionError:  # a regular file is always ready
        await anyio.lowlevel.checkpoint()
