"""New connections are ready after few round trips and know the type of vectors; there are never too many."""

from __future__ import annotations

import gc
import socket
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hermes_memory_pgvector.errors import DatabaseUnavailable
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database, half
from hermes_memory_pgvector.store.connection.socket_timeouts import TimedConnection
from hermes_memory_pgvector.store.schema.verification import APPLICATION


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


def test_a_pool_does_not_grow_into_the_place_of_an_occasional_connection(database: str, tmp_path: Path) -> None:
    opened = Database(Settings(dsn=database, pool_max=2), tmp_path)  # type: ignore[arg-type]
    try:
        with opened.connection(5.0) as connection:
            [pooled] = connection.execute("select pg_backend_pid() as pid").fetchall()
        with opened.occasional_connection(5.0), psycopg.connect(database, autocommit=True) as admin:
            # The pool replaces the dead connection and, for who waits, grows.
            admin.execute("select pg_terminate_backend(%s::int, 5000)", [pooled["pid"]])
            with opened.transaction(5.0, 5.0):
                pass
            time.sleep(0.5)
            found = admin.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and application_name = %s",
                [APPLICATION],
            )
            assert found.fetchone() == (2,)
        with opened.transaction(5.0, 5.0), opened.transaction(5.0, 5.0):
            assert opened.pool_size() == 2
    finally:
        opened.close()


def test_a_server_that_takes_no_writes_is_said_to_be_read_only(database: str, tmp_path: Path) -> None:
    reading = Database(Settings(dsn=database), tmp_path, read_only=True)
    try:
        with (
            pytest.raises(DatabaseUnavailable, match="transactions are read-only"),
            reading.transaction() as connection,
        ):
            connection.execute("delete from memory_events")
    finally:
        reading.close()


def test_an_attempt_that_times_out_closes_its_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        dsn = f"host=127.0.0.1 port={server.getsockname()[1]} sslmode=disable gssencmode=disable"
        gc.disable()
        try:
            with pytest.raises(psycopg.OperationalError, match="timeout"):
                TimedConnection.connect(dsn, connect_timeout=2, report=lambda _: None)
            asked, _ = server.accept()
            with asked:
                asked.settimeout(2)
                while asked.recv(1000):
                    pass
        finally:
            gc.enable()
