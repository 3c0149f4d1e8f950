"""Runs `hermes-pgvector` in the process of the test, or in one that can be stopped."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hermes_memory_pgvector import cli


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def shown(self) -> str:
        return self.out + self.err

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def hermes_pgvector(*arguments: str) -> Outcome:
    """Run a command line; returns its exit code and output. Without HERMES_HOME the shell is that of its home."""
    out, err = io.StringIO(), io.StringIO()
    home = next((after for name, after in pairwise(arguments) if name == "--home"), "")
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as shell:
        if home and "HERMES_HOME" not in os.environ:
            shell.setenv("HERMES_HOME", home)
        try:
            code = cli.main(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Outcome(code, out.getvalue(), err.getvalue())


def started(dsn: str, home: Path, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs a command line with a database. SIGHUP ends it, also in a run under `nohup`."""
    code = "import sys; from hermes_memory_pgvector.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, "--home", str(home), *arguments],
        env={"HERMES_PGVECTOR_DSN": dsn, "PATH": ""}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd="/", preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),
    )  # fmt: skip
