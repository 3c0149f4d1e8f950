"""mcp: serve the memory to MCP clients, and keep the tokens of those that come over HTTP."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import BadArgument, Refused
from ..hosts.installation import pip_install
from ..mirror.home import Home
from ..model import now
from ..runtime import Runtime
from ..serve.access import Access, themes_of
from ..serve.tokens import Token, Tokens
from ..settings import Settings, load
from ..text.keep import Source
from ..text.sanitize import safe_line
from ..text.theme_names import is_pattern
from ..text.times import NEVER, expiry
from .console import Cell, Console, local_time, rows_table
from .database import own_theme, running

THEME = "HERMES_PGVECTOR_MCP_THEME"
NAME_CHARS_MAX = 60


def serve(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Serve until the client goes away or a signal comes. Returns 0. Raises Refused without the SDK."""
    if find_spec("mcp") is None:
        raise Refused(f"the MCP SDK is missing; run: {pip_install('mcp')}")
    if args.http and args.theme:
        raise BadArgument("--theme is for stdin and stdout; over HTTP the token of a client says its themes")
    _log_to_stderr()
    # A connection reads and writes its own themes, whatever the settings add for agents.
    settings = load(home).model_copy(update={"also_write": {}})
    with running(settings, home) as runtime:
        (_serve_http if args.http else _serve_stdio)(runtime, home, console, args)
    return 0


def _serve_stdio(runtime: Runtime, home: Path, _: Console, args: argparse.Namespace) -> None:
    from ..serve import handlers, stdio

    given = os.environ.get(THEME)
    names = args.theme or ([given] if given else [])
    themes = _themes(names, runtime.settings) if names else ()
    session_id = f"mcp-{uuid.uuid4().hex}"

    @cache
    def access() -> Access:
        return Access(
            themes=themes or (own_theme(home, runtime.settings),), session_id=session_id, source=Source(platform="cli")
        )

    stdio.serve(handlers.Handlers(runtime, lambda _: access()))


def _serve_http(runtime: Runtime, home: Path, console: Console, args: argparse.Namespace) -> None:
    from ..serve import handlers, http, listener

    tokens = Tokens(Home(home).state)
    opened = listener.listening(args.host, args.port)
    if not tokens.all():
        console.say("no client has a token yet; add one: hermes-pgvector mcp token add --theme T")
    http.serve(handlers.Handlers(runtime, http.access), tokens, runtime.settings, opened)


def _themes(names: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """The stored names of themes that are given one by one. Raises BadArgument."""
    for name in filter(is_pattern, names):
        raise BadArgument(f"theme {name[:60]!r} is a pattern; name each theme")
    return themes_of(names, settings)


def _log_to_stderr() -> None:
    """Log warnings of this package to stderr, and nothing of the SDK, which may quote what clients send."""
    log = logging.getLogger("hermes.pgvector")
    if log.level == logging.NOTSET:
        log.addHandler(logging.StreamHandler(sys.stderr))
        log.setLevel(logging.WARNING)
        log.propagate = False
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    # Version 1 of the SDK logs by the root logger, too. A filter of a logger leaves records of other loggers alone.
    logging.getLogger().addFilter(lambda _: False)


def add_token(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Make a token and print its secret. Returns 0. Raises BadArgument, SettingsError and Unavailable."""
    themes = _themes(args.theme, load(home))
    expires = expiry(args.expires, now(), "--expires", zone=None)
    token, secret = Tokens(Home(home).state).add(themes, safe_line(args.name, NAME_CHARS_MAX), expires)
    console.data({**_document(token), "secret": secret})
    console.show(secret)
    console.say(f"token {token.id} for {', '.join(themes)}; it is shown only now, and this home keeps its hash alone")
    return 0


def list_tokens(home: Path, console: Console, args: argparse.Namespace) -> int:  # noqa: ARG001
    """List the tokens. Returns 0. Raises SettingsError."""
    tokens = Tokens(Home(home).state).all()
    console.data({"tokens": [_document(token) for token in tokens]})
    console.show(rows_table([_row(token) for token in tokens]) if tokens else "there are no tokens")
    return 0


def revoke_token(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Delete a token. Returns 0. Raises BadArgument, SettingsError and Unavailable."""
    token = Tokens(Home(home).state).revoke(args.id)
    console.data({"revoked": _document(token)})
    console.show(f"token {token.id} is revoked")
    return 0


def _document(token: Token) -> dict[str, Any]:
    return {name: value for name, value in asdict(token).items() if name != "sha256"} | {"expired": token.expired}


def _row(token: Token) -> dict[str, Cell]:
    ends = "expired" if token.expired else "" if token.expires == NEVER else _local(token.expires)
    themes = ", ".join(token.themes)
    return {"Token": token.id, "Name": token.name, "Themes": themes, "Made": _local(token.created), "Expires": ends}


def _local(text: str) -> str:
    return local_time(datetime.fromisoformat(text))
