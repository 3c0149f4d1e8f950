"""Run in the Python of a host: load modules, and fork a process for each program that is to run.

Arguments: the number of a socket's descriptor, and the modules, with as many spaces as the title of a fork may need.
A fork becomes what a start of the program would be: it has its arguments, environment, folder, streams, title and
session, and no other open file.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path
from typing import Any

REQUEST_BYTES_MAX = 1 << 20
PR_SET_PDEATHSIG = 1


def load(modules: list[str]) -> None:
    for module in modules:
        # Each host has its own.
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"a process with {len(threads)} threads cannot be forked"
    # The collector of a fork would otherwise write to the memory of each loaded object, and so copy it.
    gc.collect()
    gc.freeze()


def next_program(connection: socket.socket) -> dict[str, Any] | None:
    """Serve requests. Returns in each fork, with the program to run, and at the end of the server, with None."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
        if not message:
            return None
        request = json.loads(message)
        if "pid" in request:
            pid, status = os.waitpid(request["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif answer := os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
        else:
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
            connection.detach()
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            return request
        connection.send(json.dumps(answer).encode())


def become(command: list[str], folder: str, environment: dict[str, str]) -> None:
    # Without the server nobody could end it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = sys.__stdin__ = reopened(sys.stdin)
    sys.stdout = sys.__stdout__ = reopened(sys.stdout)
    sys.stderr = sys.__stderr__ = reopened(sys.stderr, buffering=1)
    sys.argv = command
    sys.path[0] = os.path.dirname(command[0])
    set_title([sys.executable, *command])


def reopened(stream: Any, buffering: int = -1) -> Any:
    """A stream that is buffered as its descriptor, which is another file by now, asks for."""
    return os.fdopen(stream.fileno(), stream.mode, buffering, stream.encoding, stream.errors, closefd=False)


def set_title(command: list[str]) -> None:
    """Put a command line, by which hosts know a gateway, in the place of that of the server."""
    start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    title = b"".join(word.encode() + b"\0" for word in command)
    ctypes.memmove(start, title.ljust(end - start, b"\0"), end - start - 1)


load(sys.argv[2].split())
if program := next_program(socket.socket(fileno=int(sys.argv[1]))):
    become(**program)
    runpy.run_path(sys.argv[0], run_name="__main__")
