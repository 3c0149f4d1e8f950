"""completion: a script by which a shell completes the commands and their options, made by shtab."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...errors import Refused
from ...hosts.installation import pip_install
from ..console import Console

PROGRAM = "hermes-pgvector"


def completion(home: Path, console: Console, args: argparse.Namespace) -> int:  # noqa: ARG001
    """Print the script for a shell. Raises Refused without shtab."""
    try:
        import shtab
    except ModuleNotFoundError:
        raise Refused(f"shtab is missing; run: {pip_install('completion')}") from None
    if args.pgvector_parser.prog != PROGRAM:
        raise Refused(f"a shell completes its own commands only; run: {PROGRAM} completion {args.shell}")
    script = shtab.complete(args.pgvector_parser, args.shell)
    console.data({"shell": args.shell, "script": script})
    console.show(script.rstrip("\n"))
    return 0
