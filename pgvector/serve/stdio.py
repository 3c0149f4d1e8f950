"""The server on stdin and stdout, for one client that started it."""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel

from . import listener, sdk
from .handlers import Handlers

LINE_BYTES_MAX = 8 << 20
EDGE_BYTES = 1 << 10
_CHUNK_BYTES = 1 << 16


def serve(handlers: Handlers) -> None:
    """Answer the client until it has closed stdin and has its answers, or goes away, or a signal to end comes."""
    # What else is written to stdout would break the protocol; child processes must not hold the client's pipes.
    reading, writing = _moved(0, os.open(os.devnull, os.O_RDONLY)), _moved(1, os.dup(2))
    anyio.run(_serve, handlers, reading, writing)


async def _serve(handlers: Handlers, reading: int, writing: int) -> None:
    from mcp.server.stdio import stdio_server

    made = handlers.server()
    requests = _Requests(handlers.call_s_max + listener.END_S_MAX)
    output = _Output(writing, requests)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_by_signal, tasks.cancel_scope)
            tasks.start_soon(handlers.wake)
            pipes: Any = _Lines(reading, output, requests, tasks.cancel_scope), output
            async with stdio_server(*pipes) as (received, sent):
                await made.run(received, sent, made.create_initialization_options())
            tasks.cancel_scope.cancel()
    except* (ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the client went away before it had its answers


async def _end_by_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(*listener.endings()) as signals:
        async for _ in signals:
            scope.cancel()


def _moved(fd: int, substitute: int) -> int:
    """A duplicate of a standard stream, in whose place `substitute` is put."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(substitute, fd)
    os.close(substitute)
    return moved


class _Requests:
    """The requests that wait for their answers, by their ids."""

    def __init__(self, answer_s_max: float) -> None:
        self._answer_s_max = answer_s_max
        self._open: set[int | str] = set()
        self._settled = anyio.Event()

    def note(self, message: str) -> None:
        """Note a message that was received or sent."""
        match sdk.parsed(message):
            case {"method": "notifications/cancelled", "params": {"requestId": int() | str() as number}}:
                self._settle(number)  # version 2 of the SDK does not answer it
            case {"method": _, "id": int() | str() as number}:
                self._open.add(number)
            case {"id": int() | str() as number}:
                self._settle(number)

    def _settle(self, number: int | str) -> None:
        self._open.discard(number)
        self._settled.set()

    async def wait(self) -> None:
        """Return when all requests are answered, or none of them for `answer_s_max` seconds."""
        with anyio.CancelScope() as scope:
            while self._open:
                self._settled = anyio.Event()
                scope.deadline = anyio.current_time() + self._answer_s_max
                await self._settled.wait()


class _Lines:
    """The lines of a pipe. Unlike a thread that reads, waiting for one can be cancelled.

    A line that is too long, or that the SDK cannot read, is answered with an error. The end comes when the requests are
    answered, because the SDK gives up those that are open then; soon afterwards, `scope` ends.
    """

    def __init__(self, fd: int, output: _Output, requests: _Requests, scope: anyio.CancelScope) -> None:
        self._fd, self._output, self._requests, self._scope = fd, output, requests, scope

    async def __aiter__(self) -> AsyncIterator[str]:
        # Of a line that is too long the beginning and the end are kept.
        line, beginning, chunk = bytearray(), b"", b"\n"
        while chunk:
            chunk = await self._chunk()
            # The last line may have no end.
            *ended, rest = (chunk or b"\n").split(b"\n")
            for part in ended:
                line += part
                text = beginning.decode("utf-8", "replace") + sdk.storable(bytes(line)).decode("utf-8", "replace")
                if beginning:
                    await self._refuse(text, sdk.INVALID, f"a request may have {LINE_BYTES_MAX} bytes")
                elif text.strip() and (flaw := sdk.flaw(text)):
                    await self._refuse(text, *flaw)
                elif text.strip():
                    self._requests.note(text)
                    yield text
                line, beginning = bytearray(), b""
            line += rest
            if len(line) > LINE_BYTES_MAX:
                beginning = beginning or bytes(line[:EDGE_BYTES])
                del line[:-EDGE_BYTES]
        await self._requests.wait()
        # The client may have stopped to read before it closed its end, and keep the answers waiting.
        self._scope.deadline = anyio.current_time() + listener.END_S_MAX

    async def _refuse(self, message: str, code: int, reason: str) -> None:
        await self._output.write(sdk.refusal(message, code, reason) + "\n")

    async def _chunk(self) -> bytes:
        await _ready(anyio.wait_readable, self._fd)
        return os.read(self._fd, _CHUNK_BYTES)


class _Output:
    """Writes to a pipe. Waiting for a client that does not read can be cancelled, too."""

    def __init__(self, fd: int, requests: _Requests) -> None:
        self._fd, self._requests = fd, requests
        # The SDK and `_Lines` both write.
        self._lock = anyio.Lock()

    async def write(self, text: str) -> None:
        left = memoryview(text.encode("utf-8", "replace"))
        async with self._lock:
            while left:
                await _ready(anyio.wait_writable, self._fd)
                # So many bytes a pipe takes at once when it takes any.
                left = left[os.write(self._fd, left[: select.PIPE_BUF]) :]
        self._requests.note(text)

    async def flush(self) -> None:
        """Nothing is kept back."""


async def _ready(wait: Callable[[int], Awaitable[None]], fd: int) -> None:
    try:
        await wait(fd)
    except PermissionError:  # a regular file is always ready
        await anyio.lowlevel.checkpoint()
