"""Runtimes of a home, and the record of its host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from host_record import Record
from loopback import Endpoint

from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings


@pytest.fixture
def start(tmp_path: Path, agents_database: str) -> Iterator[Callable[..., Runtime]]:
    endpoint = Endpoint()
    (tmp_path / "memories").mkdir()
    running: list[Runtime] = []

    def make(**changed: Any) -> Runtime:
        values = {
            "dsn": agents_database,
            "embed_url": endpoint.url,
            "embed_model": "test",
            "batch_linger_s": 0,
            **changed,
        }
        running.append(acquire(Settings(**values), tmp_path))
        assert running[-1].wait_ready(10)
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)
    endpoint.close()


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path)
