from __future__ import annotations

from collections.abc import Iterator

import pytest
from faultrig.agent import Agents
from faultrig.postgres import own_postgres

from hermes_memory_pgvector.store.embedded.server import EmbeddedServer, available


@pytest.fixture
def agents() -> Iterator[Agents]:
    started = Agents()
    yield started
    started.close()


@pytest.fixture
def own_server() -> Iterator[EmbeddedServer]:
    """A migrated Postgres that a test may stop and start. Connecting does not start it."""
    if not available():
        pytest.skip("needs the extra [embedded]: a server that the test may stop")
    with own_postgres() as server:
        yield server
