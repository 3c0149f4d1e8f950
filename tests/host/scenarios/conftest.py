"""A host with its own model, embedder and database for each scenario."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hostrig.hermes import Hermes
from hostrig.model import ModelEndpoint
from hostrig.rows import Rows
from loopback import Endpoint
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from conftest import Host

PASSWORD = "vertraulich-7731"


@pytest.fixture
def rows(database: str) -> Rows:
    return Rows(database)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder for temporary files whose path is short enough for the sockets that a host makes and may leave there."""
    with tempfile.TemporaryDirectory(prefix="hpg-tmp", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def make_hermes(
    host: Host, agents_database: str, model: ModelEndpoint, embedder: Endpoint, tmp_path: Path, scratch: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Hermes]]:  # fmt: skip
    """`make_hermes(**settings)`: a host whose home is set up, with settings of the plugin on top of the usual ones."""
    made: list[Hermes] = []
    forked = not any(map(request.node.get_closest_marker, ("cold_start", "slow")))

    def make(config: dict[str, Any] | None = None, **settings: Any) -> Hermes:
        # The server trusts every local user; tests search for this password where it must not be.
        usual = {
            "dsn": make_conninfo(agents_database, password=PASSWORD),
            "embed_url": embedder.url,
            "embed_model": "bag-of-words",
        }
        hermes = Hermes(
            host.name, host.python, tmp_path / "user", model, {**usual, **settings}, scratch=scratch, forked=forked
        )
        made.append(hermes.set_up(**(config or {})))
        return hermes

    yield make
    # pytest shows it when the test fails.
    for hermes in made:
        print("\n".join(hermes.complaints()[-50:]))


@pytest.fixture
def hermes(make_hermes: Callable[..., Hermes]) -> Hermes:
    return make_hermes()
