"""Counts what this thread asks the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
