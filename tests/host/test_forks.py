"""A forked process of a host is as one that was started: scenarios run in such forks, because they start faster."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hostrig import forks
from hostrig.forks import Start
from hostrig.terminal import Terminal

if TYPE_CHECKING:
    from conftest import Host

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hosts are forked on Linux only")

SHOW = """
import json, os, signal, sys
streams = [sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__]
print(json.dumps({
    "arguments": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ), "path": sys.path,
    "module": [__name__, __file__, sys.modules["__main__"].__dict__ is globals()],
    "streams": [[s.fileno(), s.isatty(), s.encoding, s.errors, s.line_buffering, s.mode] for s in streams],
    "signals": {number: repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())},
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "threads": len(os.listdir("/proc/self/task")), "files": os.listdir("/proc/self/fd"),
    "title": open("/proc/self/cmdline").read().rstrip(chr(0)),
}, default=repr))
"""
END = {
    "sys.exit(7)": 7, "sys.exit()": 0, "sys.exit('No.')": 1, "os._exit(9)": 9, "raise ValueError('No.')": 1,
    "os.kill(os.getpid(), signal.SIGINT)": -signal.SIGINT, "os.kill(0, signal.SIGKILL)": -signal.SIGKILL,
}  # fmt: skip


@pytest.fixture
def program(host: Host, tmp_path: Path) -> Callable[[str], Path]:
    """`program(code)`: a program of the host's environment."""

    def make(code: str) -> Path:
        path = tmp_path / "program"
        path.write_text(f"#!{host.python}\n{code}")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture(params=["pipe", "terminal"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Start, Path], str]:
    """`output(start, program)`: what a program shows."""
    environment = {"LANG": "C.UTF-8", "HOME": "/tmp", "PATH": "/usr/bin"}

    def of_pipe(start: Start, program: Path) -> str:
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [program, "a", "--b=c d"]
        with start(command, env=environment, cwd=tmp_path, start_new_session=True, text=True, **pipes) as process:
            out, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")
        return str(out)

    def of_terminal(start: Start, program: Path) -> str:
        with Terminal([program, "a", "--b=c d"], cwd=tmp_path, environment=environment, start=start) as terminal:
            assert terminal.ended() == 0
            return terminal.wait("}\n")

    return of_pipe if request.param == "pipe" else of_terminal


def test_a_fork_has_all_that_a_start_has(
    host: Host, program: Callable[[str], Path], output: Callable[[Start, Path], str]
) -> None:
    path = program(SHOW)
    started, forked = (
        json.loads(output(start, path)) for start in (subprocess.Popen, partial(forks.start, host.python))
    )
    assert forked == started


@pytest.mark.parametrize("code", END)
def test_a_fork_ends_with_the_exit_code_of_a_start(host: Host, program: Callable[[str], Path], code: str) -> None:
    path = program(f"import os, signal, sys\n{code}")
    how: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    for start in (subprocess.Popen, partial(forks.start, host.python)):
        with start([path], env={}, cwd="/", start_new_session=True, **how) as process:
            assert process.wait(30) == END[code]


def test_forks_one_after_the_other_iterate_over_sets_in_different_orders(
    host: Host, program: Callable[[str], Path]
) -> None:
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    orders = set()
    for _ in range(2):
        with forks.start(host.python, [program("print({*map(str, range(50))})")], env={}, cwd="/", **how) as process:
            orders.add(process.communicate(timeout=30)[0])
    assert len(orders) == 2


def test_a_fork_ends_with_its_server(host: Host, program: Callable[[str], Path]) -> None:
    server = forks.ForkServer(host.python)
    command = [str(program("import time; print('runs', flush=True); time.sleep(60)"))]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server.ask({"command": command, "folder": "/", "environment": {}}, [theirs.fileno()] * 3)
        theirs.close()
        ours.settimeout(30)
        assert ours.recv(10) == b"runs\n"
        server.process.kill()
        assert ours.recv(10) == b""


def test_the_error_of_a_server_that_has_ended_is_shown(host: Host) -> None:
    server = forks.ForkServer(host.python)
    for _ in range(2):
        with pytest.raises(AssertionError, match=r"has ended(.|\n)*ChildProcessError: .*No child processes"):
            server.ask({"pid": 1})


def test_a_server_that_does_not_answer_is_ended(host: Host) -> None:
    server = forks.ForkServer(host.python, answer_s_max=0.2)
    server.process.send_signal(signal.SIGSTOP)
    with pytest.raises(AssertionError, match=r"does not answer .*timed out"):
        server.ask({"pid": 1})
    assert server.process.wait(10) == -signal.SIGKILL
