"""serve, metrics: the page of a home's memory and its metrics, over HTTP and as a text file."""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import Refused
from ...files import expanded
from ...hosts.installation import pip_install
from ...settings import load
from ..console import ATTENTION, Console
from ..overview import observed
from ..watch.metrics import write

if TYPE_CHECKING:
    from .admission import Admission

TOKEN = "HERMES_PGVECTOR_SERVE_TOKEN"
TOKEN_CHARS_MIN = 16
PACKAGES = ("jinja2", "prometheus_client", "starlette", "uvicorn")


def serve(home: Path, console: Console, args: argparse.Namespace) -> int:  # noqa: ARG001
    """Serve until a signal comes. Returns 0. Raises Refused, BadArgument and Unavailable."""
    _check_packages()
    from ...serve import listener
    from . import app

    settings = load(home)
    admission = _admission(args)
    opened = listener.listening(args.host, args.port, public=True)
    app.serve(settings, home, opened, admission, persons=args.persons)
    return 0


def _admission(args: argparse.Namespace) -> Admission:
    from ...serve import listener
    from .admission import Admission

    token = os.environ.get(TOKEN, "")
    reachable = not listener.is_local(args.host) or args.allow_host
    if reachable and not token:
        raise Refused(
            f"others can reach the page by this address, so it needs a token: put {TOKEN}=… into .env of the home, "
            "with the output of: openssl rand -hex 24"
        )
    if token and len(token) < TOKEN_CHARS_MIN:
        raise Refused(f"{TOKEN} has {len(token)} characters; give at least {TOKEN_CHARS_MIN}")
    return Admission(token=token, hosts=(args.host, *args.allow_host))


def metrics(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print the metrics, or write them to a file. Returns ATTENTION when the database cannot be used."""
    _check_packages()
    from . import metrics as exposition

    seen = observed(load(home), home, themes_max=0)
    text = exposition.text_of(seen)
    if args.textfile:
        write(expanded(args.textfile), text)
    else:
        console.show(text.rstrip("\n"))
    console.data({"metrics": exposition.document(seen), "problem": seen.database.problem})
    if seen.database.problem:
        console.say(f"hermes-pgvector: {seen.database.problem}")
    return ATTENTION if seen.database.problem else 0


def _check_packages() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise Refused(f"packages are missing: {', '.join(missing)}; run: {pip_install('web')}")
