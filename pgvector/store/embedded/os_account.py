"""What the embedded server needs from the operating system: its account, its folders, its processes."""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...errors import DatabaseUnavailable, SettingsError

ACCOUNT = "hermes-pgvector"
_EXECVE_S_MAX = 0.2

_USERADD = ("--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", ACCOUNT)


@dataclass(frozen=True, slots=True)
class Account:
    """The operating-system account that a server runs under."""

    name: str
    uid: int
    gid: int

    @classmethod
    def of(cls, uid: int) -> Account:
        """The account of a user id. Raises SettingsError for an id without a name: Postgres cannot run under one."""
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            raise SettingsError(
                f"user id {uid} has no name in the password database and Postgres needs one: "
                "give it one there, or set dsn to a Postgres that runs elsewhere"
            ) from None
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)


def as_root() -> bool:
    """Whether this process is root, under which Postgres refuses to run."""
    return os.geteuid() == 0


def system_folder() -> Path:
    """Where root keeps its servers and what they share."""
    return Path("/var/lib/hermes-pgvector").resolve()


def server_account(data: Path, deadline: float) -> Account:
    """The account for the server of this data folder: its owner, else ours to choose.

    Root gets the system account `hermes-pgvector`, made on first use, or `nobody` where none can be made.
    """
    if not as_root():
        return Account.of(os.geteuid())
    if sys.platform != "linux":
        raise SettingsError("the embedded server cannot be started by root here: run as an ordinary user, or set dsn")
    if data.exists():
        owner = Account.of(data.stat().st_uid)
        if owner.uid == 0:
            raise SettingsError(
                f"{data} belongs to root, under which Postgres refuses to run: remove it, or set data_dir"
            )
        return owner
    with locked(system_folder() / "lock", deadline):
        return _named(ACCOUNT) or _added() or _named("nobody") or _no_account()


def _named(name: str) -> Account | None:
    try:
        return Account.of(pwd.getpwnam(name).pw_uid)
    except KeyError:
        return None


def _added() -> Account | None:
    program = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        return None
    done = subprocess.run([program, *_USERADD], capture_output=True, timeout=30, check=False)
    return _named(ACCOUNT) if done.returncode == 0 else None


def _no_account() -> Account:
    raise SettingsError(
        f"Postgres refuses to run as root and no account could be made: add a user {ACCOUNT}, or set dsn"
    )


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, ours alone to write in; one that is there is checked, never changed.

    Root's can be passed through by every account, because the server's must reach its data.
    """
    for folder in (*reversed(path.parents), path):
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            continue
        if as_root():
            folder.chmod(0o711)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise SettingsError(
            f"{path} belongs to user id {found.st_uid} with mode {found.st_mode & 0o7777:04o}, and the embedded server "
            f"needs a folder of user id {os.geteuid()} that nobody else can write to: set data_dir to another folder"
        )


def make_private_folder(path: Path, account: Account) -> None:
    """Make a folder that only the account can enter; one that is there must be just so, lest someone else made it."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        found = path.lstat()
        # Root's own is one whose maker died before it was handed over.
        ours = found.st_uid in (account.uid, os.geteuid())
        if not stat.S_ISDIR(found.st_mode) or not ours or found.st_mode & 0o077:
            raise SettingsError(
                f"{path} is not a folder that only {account.name} can enter (user id {found.st_uid}, "
                f"mode {found.st_mode & 0o7777:04o}): remove it, or set data_dir to another folder"
            ) from None
    if as_root():
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def check_reachable(folder: Path, account: Account, deadline: float) -> None:
    """Raise SettingsError, naming what is in the way, when the account cannot enter the folder."""
    if not as_root():
        return
    code, _ = run(account, ["/bin/sh", "-c", 'cd "$0"', str(folder)], deadline)
    if code:
        shut = next((path for path in (*reversed(folder.parents), folder) if not path.stat().st_mode & 0o001), folder)
        raise SettingsError(
            f"data_dir is {folder}: the account {account.name}, which Postgres must run under instead of root, cannot "
            f"enter {shut}; name a folder that it can reach, or leave data_dir empty"
        )


@contextmanager
def locked(path: Path, deadline: float) -> Iterator[None]:
    """Hold the lock of a file against all other processes and threads; the folder is made when it is missing.

    Raises DatabaseUnavailable when it cannot be had before the deadline (of time.monotonic).
    """
    make_folder(path.parent)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DatabaseUnavailable(
                        f"another process holds {path} and is still starting or stopping the embedded server: try again"
                    ) from None
                time.sleep(0.02)
        try:
            yield
        finally:
            # Said aloud, because a child forked meanwhile keeps a copy of the descriptor.
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def clean_environment() -> dict[str, str]:
    """Nothing of the agent's environment, which holds its keys, but where this machine keeps its libraries."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", **kept}


def _spawn(account: Account, arguments: list[str], stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    switch = as_root()
    try:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            cwd="/",
            env=clean_environment(),
            user=account.uid if switch else None,
            group=account.gid if switch else None,
            extra_groups=[] if switch else None,
            umask=0o077,
            start_new_session=True,
        )
    except OSError as error:
        raise DatabaseUnavailable(
            f"cannot run {arguments[0]} as {account.name}: {error}; if this machine forbids it, set dsn"
        ) from error


def run(account: Account, arguments: list[str], deadline: float, text: str = "") -> tuple[int, str]:
    """Run a program to its end with `text` as its input and return its exit code and output (both streams)."""
    process = _spawn(account, arguments, subprocess.PIPE, subprocess.STDOUT)
    output = _output(process, arguments[0], deadline, text)
    return process.returncode, output.decode(errors="replace")


def _output(process: subprocess.Popen[bytes], name: str, deadline: float, text: str = "") -> bytes:
    """What a program says until it ends; one that does not in time is killed, with all that it started."""
    try:
        return process.communicate(text.encode(), timeout=max(0.1, deadline - time.monotonic()))[0]
    except subprocess.TimeoutExpired:
        raise DatabaseUnavailable(f"{name} did not finish in time: try again with more time") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def run_detached(account: Account, arguments: list[str], log: int, deadline: float) -> int:
    """Start a program that outlives this process, in a session of its own, and return its process id.

    The shell between makes it no child of ours: it leaves no zombie here, and who kills our children misses it.
    """
    script = '"$0" "$@" </dev/null >&2 & echo $!'
    process = _spawn(account, ["/bin/sh", "-c", script, *arguments], subprocess.PIPE, log)
    return int(_output(process, "/bin/sh", deadline))


def exists(pid: int) -> bool:
    """Whether a process has this id, be it a zombie or another user's."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def runs(pid: int, argument: str) -> bool:
    """Whether the process is alive (a zombie is not) and was started with the argument."""
    if not exists(pid):
        return False
    if sys.platform == "linux":
        try:
            return os.fsencode(argument) in _command_line(pid).split(b"\0")
        except OSError:
            return False
    listed = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, timeout=10, check=False
    )
    return os.fsencode(argument) in listed.stdout


def _command_line(pid: int) -> bytes:
    """What the process was started with. In the middle of execve a living one shows nothing, so it gets a moment."""
    deadline = time.monotonic() + _EXECVE_S_MAX
    while True:
        shown = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1]
        if shown or state in (b"Z", b"X") or time.monotonic() > deadline:
            return shown
        time.sleep(0.001)


def part_of(path: Path) -> Path:
    """A fresh name beside a folder, for building it before it takes its place."""
    return path.with_name(f"{path.name}.part-{secrets.token_hex(4)}")
