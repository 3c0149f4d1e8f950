from __future__ import annotations

from collections.abc import Iterator

import pytest
from citus import NoCluster
from faultrig.agent import Agents
from faultrig.citus_nodes import Nodes, own_nodes
from faultrig.postgres import own_postgres

from hermes_memory_pgvector.store.embedded.server import EmbeddedServer, available


@pytest.fixture
def agents() -> Iterator[Agents]:
    started = Agents()
    yield started
    started.close()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """A Citus cluster whose servers a test may kill, with a distributed database."""
    try:
        with own_nodes() as started:
            yield started
    except NoCluster as missing:
        pytest.skip(str(missing))


@pytest.fixture
def own_server() -> Iterator[EmbeddedServer]:
    """A migrated Postgres that a test may stop and start. Connecting does not start it."""
    if not available():
        pytest.skip("needs the extra [embedded]: a server that the test may stop")
    with own_postgres() as server:
        yield server
