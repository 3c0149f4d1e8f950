"""completion: a script by which a shell completes the commands and their options, made by shtab."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import Refused
from ...hosts.installation import pip_install
from ..console import Console

PROGRAM = "hermes-pgvector"
# What a shell offers for an argument, by its name in the help.
OFFERED = {"PATH": "file", "FILE": "file", "DIR": "directory"}


def completion(home: Path, console: Console, args: argparse.Namespace) -> int:  # noqa: ARG001
    """Print the script for a shell. Raises Refused without shtab."""
    try:
        import shtab
    except ModuleNotFoundError:
        raise Refused(f"shtab is missing; run: {pip_install('completion')}") from None
    if args.pgvector_parser.prog != PROGRAM:
        raise Refused(f"a shell completes its own commands only; run: {PROGRAM} completion {args.shell}")
    _offer_paths(args.pgvector_parser, {"file": shtab.FILE, "directory": shtab.DIRECTORY})
    script = shtab.complete(args.pgvector_parser, args.shell)
    console.data({"shell": args.shell, "script": script})
    console.show(script.rstrip("\n"))
    return 0


def _offer_paths(parser: argparse.ArgumentParser, offers: Mapping[str, Mapping[str, Any]]) -> None:
    """Have the script offer files and folders for the arguments that take them, in all commands of a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _offer_paths(command, offers)
        elif action.metavar in OFFERED:
            vars(action)["complete"] = offers[OFFERED[str(action.metavar)]]
