"""A home with a database and an embedder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Endpoint
from mcprig.memory import Memory


@pytest.fixture
def memory(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Memory]:
    with Memory(tmp_path / "home", dsn=database, embed_url=endpoint.url) as opened:
        yield opened
