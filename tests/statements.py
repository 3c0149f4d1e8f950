"""Counts what this thread asks the server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_memory_pgvector.store.connection.socket_timeouts import TimedConnection


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of round trips to the server in the block, as the only item of a list."""
    found, thread, wait = [0], threading.current_thread(), TimedConnection.wait

    def counting(connection: TimedConnection, *args: Any, **kwargs: Any) -> Any:
        found[0] += threading.current_thread() is thread
        return wait(connection, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(TimedConnection, "wait", counting)
        yield found


@contextmanager
def traced(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Callable[[], list[int]]]:
    """Returns how often each new connection of this process has waited for the server since it was made.

    Needs Linux, where libpq traces messages.
    """
    connect, files = TimedConnection.connect.__func__, list[Path]()  # type: ignore[attr-defined]

    def tracing(cls: type[TimedConnection], *args: Any, **kwargs: Any) -> TimedConnection:
        connection: TimedConnection = connect(cls, *args, **kwargs)
        files.append(folder / f"messages-{len(files)}")
        with files[-1].open("w") as file:
            connection.pgconn.trace(os.dup(file.fileno()))
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(TimedConnection, "connect", classmethod(tracing))
        yield lambda: [file.read_text().count("ReadyForQuery") for file in files]
