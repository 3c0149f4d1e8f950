"""The embedded Postgres: one private server for a home, started on demand and shared by all its processes.

The server has a *state folder* outside the home, because the host's backup cannot copy the files of a live server:

    lock  server.log  pg_hba.conf  pg_ident.conf  agents    written by this package
    data/                                                   written by Postgres
    run/                                                    the socket; elsewhere when this path is too long

It listens on the socket only and admits only its owner and root, by their user ids: as the owner of the database, or as
the role of agents, which reads and writes rows. It outlives the process that started it. Tuning is in
data/postgresql.conf, which the operator may edit.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...errors import DatabaseUnavailable, SettingsError
from ...files import reason
from . import cluster, system
from .programs import MAJOR, server_programs, wheel_folder
from .system import Account, account_of, as_root

_SOCKET_PATH_MAX = 100
_POLL_S = 0.02
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}

# Larger than any process id.
_NO_PROCESS = str(2**31 - 1)

# Log texts of a start that failed because processes of a killed server have not ended yet: worth a retry.
_STILL_HELD = ("shared memory block", f"{cluster.SOCKET}.lock")


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one server."""

    state: Path
    data: Path
    sockets: Path

    @property
    def log(self) -> Path:
        """The server's log, of at most about 10 MiB."""
        return self.state / "server.log"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of a server now. `version` (the major one) and `account` are empty while there is no data folder."""

    running: bool
    pid: int | None
    data_dir: Path
    socket_dir: Path
    version: str
    size_bytes: int
    account: str


def available() -> bool:
    """Whether the embedded Postgres is installed."""
    return wheel_folder() is not None


class EmbeddedServer:
    """The server of one home. Holds its paths only: safe in any number of threads and processes."""

    def __init__(self, hermes_home: str | os.PathLike[str], data_dir: str = "") -> None:
        """`data_dir`, which is absolute or starts with ~, replaces the home's state folder.

        Raises SettingsError when there is neither that nor a home folder of the account.
        """
        self.paths = _paths(Path(hermes_home).expanduser().resolve(), data_dir)

    @property
    def dsn(self) -> str:
        """The connection string of the owner, as libpq's key=value pairs; there is no password."""
        return self._dsn(cluster.ROLE)

    @property
    def agent_dsn(self) -> str:
        """The connection string of agents."""
        return self._dsn(cluster.AGENT)

    def _dsn(self, role: str) -> str:
        from psycopg.conninfo import make_conninfo

        return make_conninfo(
            host=str(self.paths.sockets),
            hostaddr="",
            port=cluster.PORT,
            dbname=cluster.DATABASE,
            user=role,
            # A folder below /tmp can be deleted and made again by another user while no server runs.
            requirepeer=None if as_root() else account_of(os.geteuid()).pw_name,
        )

    def check_made(self) -> None:
        """Raise SettingsError when there is no data folder, for callers that must not make one."""
        if not self.paths.data.exists():
            raise SettingsError(
                f"this home has no memory yet: there is no {self.paths.data}; the first session makes it, "
                "or: hermes-pgvector server start. For another home, give --home"
            )

    def ensure_running(self, timeout_s: float = 60.0) -> bool:
        """Start the server unless it runs, making it on first use, and wait until it answers and admits agents.

        Returns whether this call started it. Raises SettingsError when the settings or the machine do not allow it, and
        DatabaseUnavailable, with the last lines of its log, when it does not answer in time.
        """
        cluster.bound_log(self.paths.log)
        if self._answers() and self.admits_agents:
            return False
        deadline = time.monotonic() + timeout_s
        with self._locked(deadline):
            started = not self._answers() and self._make_and_start(deadline)
            if not self.admits_agents:
                cluster.admit_agents(self.paths.state, self.paths.data, self.dsn, self.agent_dsn, deadline)
            return started

    @property
    def admits_agents(self) -> bool:
        """Whether agents may connect; not to a server that an earlier release started, before `ensure_running`."""
        return cluster.admits_agents(self.paths.state, self.paths.data)

    def stop(self, timeout_s: float = 30.0, mode: Literal["smart", "fast", "immediate"] = "fast") -> bool:
        """Stop the server and wait until its process has ended. Returns False when none was running.

        Raises DatabaseUnavailable when it does not stop in time.
        """
        if not self.paths.data.exists():
            return False
        deadline = time.monotonic() + timeout_s
        with self._locked(deadline):
            pid = self._postmaster()
            if pid is None:
                return False
            with suppress(ProcessLookupError):
                os.kill(pid, _SIGNALS[mode])
            while system.runs(pid, str(self.paths.data)):
                if time.monotonic() > deadline:
                    raise DatabaseUnavailable(
                        f"the embedded server (process {pid}) did not stop within {timeout_s:g} s: stop it with mode "
                        "immediate, which the next start recovers from"
                    )
                time.sleep(_POLL_S)
            return True

    def status(self) -> ServerStatus:
        """The state of the server; changes nothing, and walks the data folder for its size."""
        running, data = self._answers(), self.paths.data
        return ServerStatus(
            running=running,
            pid=self._pid_file()[0] if running else self._postmaster(),
            data_dir=data,
            socket_dir=self.paths.sockets,
            version=cluster.version_of(data),
            size_bytes=system.size_bytes(data),
            account=account_of(data.stat().st_uid).pw_name if data.exists() else "",
        )

    def _answers(self) -> bool:
        """Whether the server accepts connections now; takes a fraction of a millisecond."""
        return self._pid_file()[1] and self._socket_answers()

    def _pid_file(self) -> tuple[int | None, bool]:
        """The process id in postmaster.pid, and whether the file says that the server accepts connections."""
        try:
            with (self.paths.data / "postmaster.pid").open(errors="replace") as file:
                lines = file.read(4096).splitlines()
            return int(lines[0]), len(lines) > 7 and lines[7].strip() == "ready"
        except (OSError, ValueError, IndexError):
            return None, False

    def _socket_answers(self) -> bool:
        try:
            if not as_root() and self.paths.sockets.lstat().st_uid != os.geteuid():
                return False
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(1.0)
                probe.connect(str(self.paths.sockets / cluster.SOCKET))
        except OSError:
            return False
        return True

    def _postmaster(self) -> int | None:
        """The process id of the live server of this data folder, ready or not."""
        pid, _ = self._pid_file()
        return pid if pid is not None and system.runs(pid, str(self.paths.data)) else None

    @contextmanager
    def _locked(self, deadline: float) -> Iterator[None]:
        state = self.paths.state
        try:
            if (state / "PG_VERSION").exists():
                raise SettingsError(
                    f"data_dir is {state}, the data folder of another Postgres: name a new or empty folder"
                )
            with system.locked(state / "lock", deadline):
                yield
        except OSError as error:
            raise DatabaseUnavailable(
                f"the embedded server cannot use {error.filename or state}: {reason(error)}"
            ) from error

    def _make_and_start(self, deadline: float) -> bool:
        paths = self.paths
        account = system.server_account(paths.data, deadline)
        programs = server_programs(deadline)
        system.check_reachable(paths.state, account, deadline)
        if paths.sockets.parent != paths.state:
            system.make_folder(paths.sockets.parent)
        system.make_private_folder(paths.sockets, account)
        cluster.write_authentication(paths.state, agents=False)
        cluster.remove_unfinished(paths.data)
        if not paths.data.exists():
            cluster.create(paths.data, account, programs, deadline)
        cluster.check_version(paths.data, MAJOR)
        return self._start(account, programs, deadline)

    def _start(self, account: Account, programs: Path, deadline: float) -> bool:
        log = os.open(self.paths.log, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        data, sockets, state = self.paths.data, self.paths.sockets, self.paths.state
        try:
            while True:
                # A server that runs but does not answer yet was started by a process that has died since.
                if self._wait(deadline):
                    return False
                self._remove_stale_files(deadline)
                offset = os.fstat(log).st_size
                command = cluster.start_command(data, sockets, state, programs, deadline - time.monotonic())
                code, _ = system.run(account, command, deadline, output=log, PGDATA=str(data))
                if code == 0:
                    return True
                output = os.pread(log, 2**16, offset).decode(errors="replace")
                still_held = any(text in output for text in _STILL_HELD) and time.monotonic() < deadline
                if self._postmaster() is None and not still_held:
                    why = cluster.start_failure(output)
                    raise DatabaseUnavailable(f"the embedded server did not start: {why}; its log is {self.paths.log}")
                time.sleep(10 * _POLL_S)
        finally:
            os.close(log)

    def _wait(self, deadline: float) -> bool:
        """Wait until the running server answers; False when none runs."""
        while not self._answers():
            pid = self._postmaster()
            if pid is None:
                return False
            if time.monotonic() > deadline:
                raise DatabaseUnavailable(
                    f"the embedded server (process {pid}) runs but does not answer in {self.paths.sockets}: "
                    f"it may be recovering from a crash, or see another {self.paths.sockets.parent} than this process; "
                    f"try again later, and read {self.paths.log}"
                )
            time.sleep(_POLL_S)
        return True

    def _remove_stale_files(self, deadline: float) -> None:
        """Remove the files of a dead server that stop Postgres when another process has its process id by now."""
        while self._socket_answers():
            # An ending server removes any socket with this name, so a new server must wait for it.
            if time.monotonic() > deadline:
                raise DatabaseUnavailable(
                    f"an older server whose data folder was deleted still listens in {self.paths.sockets}: "
                    "it notices within a minute, so try again then"
                )
            time.sleep(10 * _POLL_S)
        for name in (cluster.SOCKET, f"{cluster.SOCKET}.lock"):
            (self.paths.sockets / name).unlink(missing_ok=True)
        try:
            handle = os.open(self.paths.data / "postmaster.pid", os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            return
        # The rest of the file stays: Postgres uses it to find backends of the dead server that still run.
        with open(handle, "r+") as file:
            rest = file.read(4096).partition("\n")[2]
            file.seek(0)
            file.truncate()
            file.write(f"{_NO_PROCESS}\n{rest}")


def _paths(home: Path, data_dir: str) -> Paths:
    if data_dir:
        state = Path(os.path.expanduser(data_dir))
    elif as_root():
        state = system.system_folder() / _digest(home)
    else:
        given = os.environ.get("XDG_DATA_HOME", "")
        base = Path(given if given.startswith("/") else os.path.expanduser("~/.local/share"))
        if not base.is_absolute():
            raise SettingsError("this account has no home folder: set data_dir to an absolute path, or a dsn")
        state = base / "hermes-pgvector" / _digest(home)
    state = state.resolve()
    sockets = state / "run"
    too_long = len(os.fsencode(sockets / f"{cluster.SOCKET}.lock")) > _SOCKET_PATH_MAX
    # For libpq a comma ends the name of a host.
    if too_long or "," in str(sockets):
        short = system.system_folder() / "run" if as_root() else Path(f"/tmp/hermes-pgvector-{os.geteuid()}")
        sockets = short / _digest(state)
    return Paths(state, state / "data", sockets)


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
