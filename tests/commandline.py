"""Runs `hermes-pgvector` in the process of the test."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

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
    """Run a command line; returns its exit code and output."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = cli.main(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Outcome(code, out.getvalue(), err.getvalue())
