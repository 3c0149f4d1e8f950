"""Accounts, folders, locks and processes of the operating system, as the embedded server needs them."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from ...errors import DatabaseUnavailable, SettingsError

# An account of the operating system.
Account: TypeAlias = pwd.struct_passwd

ACCOUNT = "hermes-pgvector"

_USERADD = ("--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", ACCOUNT)


def account_of(uid: int) -> Account:
    """The account of a user id. Raises SettingsError for an id without a name: Postgres cannot run under one."""
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise SettingsError(
            f"user id {uid} has no name in the password database and Postgres needs one: "
            "give it one there, or set dsn to a Postgres that runs elsewhere"
        ) from None


def as_root() -> bool:
    """Whether this process is root, under which Postgres refuses to run."""
    return os.geteuid() == 0


def system_folder() -> Path:
    """The folder of root's servers and of the files that they share."""
    return Path("/var/lib/hermes-pgvector").resolve()


def server_account(data: Path, deadline: float) -> Account:
    """The account that the server of this data folder runs under: the folder's owner, or this process's account.

    For root it is the system account `hermes-pgvector`, which is made on first use, or `nobody` when it cannot be made.
    Raises SettingsError when no account can be used.
    """
    if not as_root():
        return account_of(os.geteuid())
    if sys.platform != "linux":
        raise SettingsError("the embedded server cannot be started by root here: run as an ordinary user, or set dsn")
    if data.exists():
        owner = account_of(data.stat().st_uid)
        if owner.pw_uid == 0:
            raise SettingsError(
                f"{data} belongs to root, under which Postgres refuses to run: remove it, or set data_dir"
            )
        return owner
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    with locked(system_folder() / "lock", deadline):
        if _named(ACCOUNT) is None and useradd:
            subprocess.run([useradd, *_USERADD], capture_output=True, timeout=30, check=False)
    account = _named(ACCOUNT) or _named("nobody")
    if account is None:
        raise SettingsError(
            f"Postgres refuses to run as root and no account could be made: add a user {ACCOUNT}, or set dsn"
        )
    return account


def _named(name: str) -> Account | None:
    with suppress(KeyError):
        return pwd.getpwnam(name)
    return None


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, writable for this account only; an existing one is checked, not changed.

    Every account may pass through a folder of root, because the server's account must reach its data. Raises
    SettingsError when an existing folder has another owner or other writers.
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
            f"needs a folder of user id {os.geteuid()} that no other user can write to: set data_dir to another folder"
        )


def make_private_folder(path: Path, account: Account) -> None:
    """Make a folder that only the account can enter. Raises SettingsError when an existing one differs."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        found = path.lstat()
        # A folder of root is left when a process died between mkdir and chown.
        ours = found.st_uid in (account.pw_uid, os.geteuid())
        if not stat.S_ISDIR(found.st_mode) or not ours or found.st_mode & 0o077:
            raise SettingsError(
                f"{path} is not a folder that only {account.pw_name} can enter (user id {found.st_uid}, "
                f"mode {found.st_mode & 0o7777:04o}): remove it, or set data_dir to another folder"
            ) from None
    if as_root():
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def check_reachable(folder: Path, account: Account, deadline: float) -> None:
    """Raise SettingsError that names the closed folder when the account cannot enter `folder`."""
    if not as_root():
        return
    code, _ = run(account, ["/bin/sh", "-c", 'cd "$0"', str(folder)], deadline)
    if code:
        closed = next((path for path in (*reversed(folder.parents), folder) if not path.stat().st_mode & 0o001), folder)
        raise SettingsError(
            f"data_dir is {folder}: the account {account.pw_name}, which Postgres must run under instead of root, "
            f"cannot enter {closed}; name a folder that it can reach, or leave data_dir empty"
        )


def size_bytes(folder: Path) -> int:
    """The bytes of all files below a folder."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total


@contextmanager
def locked(path: Path, deadline: float) -> Iterator[None]:
    """Hold the lock of a file against all other processes and threads; makes the folder when it is missing.

    Raises DatabaseUnavailable when the lock is not free before the deadline (of time.monotonic).
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
            # Closing is not enough: a child that was forked meanwhile has a copy of the descriptor.
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def clean_environment() -> dict[str, str]:
    """The environment of Postgres' programs: without the agent's variables, which hold keys, but with library paths."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", **kept}


def run(
    account: Account,
    arguments: list[str],
    deadline: float,
    *,
    text: str = "",
    output: int = subprocess.PIPE,
    remedy: str = "try again with more time",
    **environment: str,
) -> tuple[int, str]:
    """Run a program with `text` as its input; returns its exit code and what it prints, unless that goes to `output`.

    Raises DatabaseUnavailable when it cannot be started, or does not end before the deadline. Then it is killed
    together with its process group; a server that pg_ctl has started is in another one.
    """
    switch: dict[str, Any] = {}
    if as_root():
        switch = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    try:
        process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd="/",
            env=clean_environment() | environment, umask=0o077, start_new_session=True, **switch,
        )  # fmt: skip
    except OSError as error:
        raise DatabaseUnavailable(
            f"cannot run {arguments[0]} as {account.pw_name}: {error}; if this machine forbids it, set dsn"
        ) from error
    try:
        printed, _ = process.communicate(text.encode(), timeout=deadline - time.monotonic())
    except subprocess.TimeoutExpired:
        raise DatabaseUnavailable(f"{arguments[0]} did not finish in time: {remedy}") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, (printed or b"").decode(errors="replace")


def runs(pid: int, argument: str) -> bool:
    """Whether the process runs (a zombie does not) and was started with the argument."""
    if sys.platform == "linux":
        try:
            return os.fsencode(argument) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
    listed = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, timeout=10, check=False
    )
    return os.fsencode(argument) in listed.stdout
