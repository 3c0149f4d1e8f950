"""A new connection is ready after few round trips, and knows the type of vectors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database, half
from hermes_memory_pgvector.store.connection.socket_timeouts import TimedConnection


def test_a_new_connection_takes_two_round_trips_until_its_transaction_is_open(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Database(Settings(dsn=database), tmp_path)  # type: ignore[arg-type]
    waits, wait = list[str](), TimedConnection.wait

    def counting(connection: TimedConnection, *arguments: Any, **named: Any) -> Any:
        waits.append(threading.current_thread().name)
        return wait(connection, *arguments, **named)

    monkeypatch.setattr(TimedConnection, "wait", counting)
    try:
        with opened.transaction(5.0, 5.0) as connection:
            # The type of vectors, and the opening of the transaction.
            assert len(waits) <= 2, waits
            [found] = connection.execute("select %s as vector", [half([1.0] * 384)]).fetchall()
            assert found["vector"].to_list() == [1.0] * 384
    finally:
        opened.close()
