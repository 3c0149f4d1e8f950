"""The data folder of a server: how it is made, its version, and the command that starts a server on it."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shlex
import shutil
import sys
import time
from pathlib import Path

from ...errors import SERVER_DISK_FULL, DatabaseUnavailable, SettingsError
from ...files import overwrite
from .system import Account, account_of, as_root, make_private_folder, run

DATABASE = "hermes"
# The owner of the database, a superuser: it makes the tables. Agents connect as the other role.
ROLE = "hermes"
AGENT = "hermes_agent"
PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"

_STAMP = re.compile(r"^\S+ \S+ UTC \[\d+\] ")
_CONSEQUENCE = re.compile(
    "exited with exit code|terminating any other|shutting down due|is shut down|the database system is "
    "|pg_ctl:|Examine the log"
)
_TAIL_LINES, _TAIL_CHARS = 6, 1200
_LOG_MAX_BYTES, _LOG_KEPT_BYTES = 10 * 2**20, 2**18
_SMALL_SHM_BYTES = 2**30
_CONNECT_S, _POLL_S = 10, 0.02

_TUNING = {
    "shared_buffers": "128MB",
    "maintenance_work_mem": "128MB",
    "max_connections": "100",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "huge_pages": "off",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # Errors, statements and details can quote stored text, which must not get into the log.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


def create(data: Path, account: Account, programs: Path, deadline: float) -> None:
    """Make a data folder with our database and the vector extension.

    It is built under another name and then renamed, so that it is complete whenever it exists. Raises
    DatabaseUnavailable.
    """
    part = data.with_name(f"{data.name}.part-{secrets.token_hex(4)}")
    make_private_folder(part, account)
    _initdb(part, account, programs, deadline)
    single = [str(programs / "postgres"), "--single", "-D", str(part), "-c", "exit_on_error=on", "template1"]
    commands = f"CREATE EXTENSION vector;\nCREATE DATABASE {DATABASE};\n"
    code, output = run(account, single, deadline, text=commands)
    if code:
        raise DatabaseUnavailable(f"cannot make the embedded database in {data}: {tail(output)}")
    part.rename(data)


def remove_unfinished(data: Path) -> None:
    """Remove what `create` left when its process was killed. Its initdb goes on for a moment, so some may come back."""
    for part in data.parent.glob(f"{data.name}.part-*"):
        shutil.rmtree(part, ignore_errors=True)


def _initdb(folder: Path, account: Account, programs: Path, deadline: float) -> None:
    command = [str(programs / "initdb"), "-D", str(folder), "-U", ROLE, "--auth-local=peer", "--auth-host=reject"]
    command += ["--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
    command += [f"--set={name}={value}" for name, value in _TUNING.items()]
    # Postgres sorts by itself; only its text parser asks the system which characters are letters.
    for ctype in ("C.UTF-8", "en_US.UTF-8", "C"):
        code, output = run(account, [*command, f"--lc-ctype={ctype}"], deadline)
        if code == 0:
            return
        if "invalid locale" not in output:
            break
    raise DatabaseUnavailable(
        f"cannot make the embedded database in {folder.parent}: {tail(output)}; check the free space"
    )


def check_version(data: Path, major: int) -> None:
    """Raise SettingsError when the folder was made by another major version of Postgres."""
    found = version_of(data)
    if found != str(major):
        raise SettingsError(
            f"{data} was made by Postgres {found or 'of an unknown version'} and the embedded one is {major}: dump it "
            "with its own version and restore the dump, or set data_dir to an empty folder"
        )


def version_of(data: Path) -> str:
    """The major version of Postgres that made the folder, as text; empty when there is none."""
    try:
        return (data / "PG_VERSION").read_text().strip()[:20]
    except (OSError, UnicodeDecodeError):
        return ""


def start_command(data: Path, sockets: Path, state: Path, programs: Path, timeout_s: float) -> list[str]:
    """The command that starts a server in the background and waits until it answers; its environment needs PGDATA.

    Options that keep the server private are here, because they override files in `data`.
    """
    quoted_sockets = str(sockets).replace('"', '""')
    options = {
        "hba_file": str(state / "pg_hba.conf"),
        "ident_file": str(state / "pg_ident.conf"),
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": f'"{quoted_sockets}"',
        "unix_socket_permissions": "0700",
        "logging_collector": "off",
        "log_destination": "stderr",
    }
    if _small_shm():
        options["dynamic_shared_memory_type"] = "sysv"
    flags = [flag for name, value in options.items() for flag in ("-c", f"{name}={value}")]
    # pg_ctl gives the options to a shell. It would do that with its own -D, too, but without quoting.
    quoted = shlex.join(["-D", str(data), *flags])
    wait = f"--timeout={max(1, int(timeout_s))}"
    return [str(programs / "pg_ctl"), "start", "--silent", "--wait", wait, f"--options={quoted}"]


# The run of the server that admits agents.
_ADMITTING = "agents"
_HBA = f"local all {ROLE} peer map=owner\n"
_HBA_WITH_AGENTS = f"{_HBA}local {DATABASE} {AGENT} peer map=owner\n"


def write_authentication(state: Path, *, agents: bool) -> None:
    """Admit only the user of this process and root, whom Postgres knows by the credentials of the socket.

    They may connect as the owner, and with `agents` as the role of agents, which must exist.
    """
    names, roles = {account_of(os.geteuid()).pw_name, account_of(0).pw_name}, (ROLE, AGENT)
    texts = {
        "pg_hba.conf": _HBA_WITH_AGENTS if agents else _HBA,
        "pg_ident.conf": "".join(f'owner "{name}" {role}\n' for name in sorted(names) for role in roles),
    }
    for name, text in texts.items():
        overwrite(state / name, text)
        if as_root():
            # The server runs under another account.
            (state / name).chmod(0o644)


def admits_agents(state: Path, data: Path) -> bool:
    """Whether the running server admits the role of agents. One that an earlier release has started does not."""
    try:
        return (state / _ADMITTING).read_text() == _run_of(data)
    except (OSError, UnicodeDecodeError, IndexError):
        return False


def admit_agents(state: Path, data: Path, owner_dsn: str, agent_dsn: str, deadline: float) -> None:
    """Make the role of agents and have the running server admit it; connections of the owner go on.

    The last step notes it, so that a process that is killed before leaves it to the next one. Raises
    DatabaseUnavailable.
    """
    import psycopg

    try:
        with psycopg.connect(owner_dsn, autocommit=True, connect_timeout=_CONNECT_S) as owner:
            # Its rights come with the tables.
            if owner.execute("SELECT FROM pg_roles WHERE rolname = %s", [AGENT]).fetchone() is None:
                owner.execute(f"CREATE ROLE {AGENT} LOGIN".encode())
            write_authentication(state, agents=True)
            owner.execute("SELECT pg_reload_conf()")
        while not _connects(agent_dsn, last=time.monotonic() > deadline):
            time.sleep(_POLL_S)
    except psycopg.Error as error:
        raise DatabaseUnavailable(f"the embedded server does not admit the role {AGENT}: {error}") from error
    overwrite(state / _ADMITTING, _run_of(data))


def _connects(dsn: str, *, last: bool) -> bool:
    """Whether the server lets a role in, which reads its files a moment after a signal. A `last` failure is raised."""
    import psycopg

    try:
        psycopg.connect(dsn, connect_timeout=_CONNECT_S).close()
    except psycopg.OperationalError:
        if last:
            raise
        return False
    return True


def _run_of(data: Path) -> str:
    """The process id and the time of the start of the running server."""
    lines = (data / "postmaster.pid").read_text().splitlines()
    return f"{lines[0]} {lines[2]}\n"


def _small_shm() -> bool:
    """Whether /dev/shm is too small for a parallel index build, as in many containers."""
    if sys.platform != "linux":
        return False
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return True
    return found.f_blocks * found.f_frsize < _SMALL_SHM_BYTES


def tail(output: str) -> str:
    """The last lines of a program's output, joined to one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-_TAIL_LINES:])[-_TAIL_CHARS:] or "no output"


def start_failure(output: str) -> str:
    """Why a server did not start: the end of its output, without times and what follows from the failure."""
    lines = [_STAMP.sub("", line) for line in output.splitlines() if not _CONSEQUENCE.search(line)]
    found = tail("\n".join(lines) if lines else output)
    return f"{SERVER_DISK_FULL}: {found}" if os.strerror(errno.ENOSPC) in output else found


def bound_log(path: Path) -> None:
    """Shorten a log of more than 10 MiB to its end. A running server goes on appending to it."""
    try:
        if path.stat().st_size <= _LOG_MAX_BYTES:
            return
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
    except OSError:
        return
    with open(handle, "r+b") as file:
        file.seek(-_LOG_KEPT_BYTES, os.SEEK_END)
        kept = file.read(_LOG_KEPT_BYTES)
        file.truncate(0)
        file.write(kept)
