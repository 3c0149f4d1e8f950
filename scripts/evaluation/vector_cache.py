"""Vectors of one model on disk, by the SHA-256 of their texts."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Encode = Callable[[str], "list[float]"]


class VectorCache:
    """A file with the vectors of one model. Thread-safe; embeds one text at a time."""

    def __init__(self, path: str | Path, encode: Encode) -> None:
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute(
            "create table if not exists vectors (digest blob primary key, vector blob) without rowid"
        )
        self._encode, self._lock = encode, threading.Lock()

    def vector(self, text: str) -> list[float]:
        """The vector of a text, from the cache if it is there."""
        digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
        with self._lock:
            row = self._database.execute("select vector from vectors where digest = ?", [digest]).fetchone()
            if row:
                return array("f", row[0]).tolist()
            vector = array("f", self._encode(text))
            self._database.execute("insert or ignore into vectors values (?, ?)", [digest, vector.tobytes()])
        return vector.tolist()


class CachedModel:
    """A bundled model whose vectors are kept on disk. It is loaded with the first text that is not there."""

    def __init__(self, make: Callable[[], Any], path: Path) -> None:
        self._make, self._model = make, None
        self._cache = VectorCache(path, self._encode)

    def passage(self, text: str) -> NDArray[np.float32]:
        """As the method of the model."""
        return np.array(self._cache.vector(f"passage: {text}"), dtype=np.float32)

    def query(self, text: str) -> NDArray[np.float32]:
        """As the method of the model."""
        return np.array(self._cache.vector(f"query: {text}"), dtype=np.float32)

    def _encode(self, text: str) -> list[float]:
        self._model = self._model or self._make()
        side, _, rest = text.partition(": ")
        vector: list[float] = getattr(self._model, side)(rest).tolist()
        return vector


@contextmanager
def cached_models(folder: Path) -> Iterator[None]:
    """Keep the vectors of the bundled models that this process uses in `folder`, a file for each model."""
    from hermes_memory_pgvector.embedding.bundled import local

    folder.mkdir(parents=True, exist_ok=True)
    classes = dict(local._CLASSES)
    for name, make in classes.items():
        local._CLASSES[name] = lambda name=name, make=make: CachedModel(make, folder / f"bundled-{name}.sqlite")
    try:
        yield
    finally:
        local._CLASSES.update(classes)
