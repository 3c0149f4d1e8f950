from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_memory_pgvector.embedding import factory
from hermes_memory_pgvector.embedding.compatibility import EmbedderCompatibility
from hermes_memory_pgvector.errors import ModelChanged
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.connection.held_vectors import HeldVectors
from hermes_memory_pgvector.store.schema.verification import LATEST, Origin, SchemaState


def test_an_embedder_that_is_being_made_is_closed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    making, made = threading.Event(), threading.Event()
    closed: list[str] = []

    class Slow:
        def close(self) -> None:
            closed.append("closed")

    def build(*_: Any, **__: Any) -> Slow:
        making.set()
        assert made.wait(60)
        return Slow()

    monkeypatch.setattr(factory, "build", build)
    compatibility = EmbedderCompatibility(Settings(), tmp_path, Database(Settings(), tmp_path))
    maker = threading.Thread(target=lambda: compatibility.embedder)
    closer = threading.Thread(target=compatibility.close)
    maker.start()
    assert making.wait(60)
    closer.start()
    closer.join(0.1)
    made.set()
    maker.join()
    closer.join()
    assert closed == ["closed"]


def test_a_model_that_a_database_gets_after_the_start_of_a_mere_reader_is_looked_for() -> None:
    held = HeldVectors(1)
    held.state = SchemaState(4, None, LATEST)
    row = {"model": "", "dimensions": 4, "oldest_client": 0}
    held.check(row, Origin("old", 4))
    held.check({**row, "model": "old"}, Origin("old", 4))
    assert not held.outdated
    with pytest.raises(ModelChanged):
        held.check({**row, "model": "new"}, Origin("old", 4))
    assert held.outdated
