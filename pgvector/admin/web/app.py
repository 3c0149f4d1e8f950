"""The web application, and its server."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ...errors import PgvectorError
from ...serve import listener
from ...settings import Settings
from .admission import Admission, Guard
from .pages import Pages, failed
from .reading import Reader

_STYLE = Path(__file__).with_name("style.css")


def application(settings: Settings, home: Path, reader: Reader, admission: Admission) -> Guard:
    """The ASGI application."""
    pages = Pages(settings, home, reader)
    answers = {
        "/": pages.overview,
        "/themes": pages.themes,
        "/theme": pages.theme,
        "/search": pages.search,
        "/row": pages.row,
        "/doctor": pages.doctor,
        "/metrics": pages.metrics,
        "/readyz": pages.ready,
        "/healthz": _healthy,
        "/style.css": _style,
    }
    handlers: Mapping[Any, Any] = {PgvectorError: failed, HTTPException: failed}
    routes = [Route(path, answer) for path, answer in answers.items()]
    return Guard(Starlette(routes=routes, exception_handlers=handlers), admission)


def serve(settings: Settings, home: Path, opened: socket.socket, admission: Admission, *, persons: bool) -> None:
    """Answer requests until a signal of `listener.endings` comes. Raises SettingsError without a database."""
    with closing(Reader(settings, home, persons=persons)) as reader:
        anyio.run(_serve, application(settings, home, reader, admission), opened)


async def _serve(app: Guard, opened: socket.socket) -> None:
    server = listener.server_of(app)
    async with anyio.create_task_group() as tasks:
        await tasks.start(listener.end_by_signal, server)
        url = listener.url_of(opened)
        print(f"serving the page at {url}/ and the metrics at {url}/metrics", file=sys.stderr, flush=True)
        await server.serve(sockets=[opened])
        tasks.cancel_scope.cancel()


def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok\n")


def _style(_: Request) -> Response:
    return Response(_STYLE.read_bytes(), media_type="text/css")
