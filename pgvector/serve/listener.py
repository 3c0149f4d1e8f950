"""The socket of a server on this machine, its web server, and its end by a signal."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from contextlib import nullcontext, suppress
from typing import Any

import anyio
from anyio.abc import TaskStatus

from ..errors import BadArgument, Unavailable

LOCAL = ("127.0.0.1", "localhost", "[::1]")
CONNECTIONS_MAX = 128
HEADER_S_MAX = 5
# The system takes further bytes when a part of its buffer is free, which is megabytes on loopback.
TAKE_S_MAX = 60
END_S_MAX = 2


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address. Raises BadArgument when it is none."""
    return _address(host).is_loopback


def listening(host: str, port: int, *, public: bool = False) -> socket.socket:
    """A socket on an address of this machine. Raises BadArgument, and Unavailable when the port cannot be used.

    Unless `public`, an address that others can reach is a BadArgument.
    """
    address = _address(host)
    if not address.is_loopback and not public:
        raise BadArgument(
            f"--host is {host}, which others can reach without encryption; serve on 127.0.0.1, and reach it from "
            "other machines through ssh -L or a proxy with TLS"
        )
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        return socket.create_server((str(address), port), family=family)
    except OSError as error:
        raise Unavailable(f"port {port} of {address} cannot be used ({error.strerror}); give another --port") from None


def name_of(opened: socket.socket) -> str:
    """The address of a socket as the host of a URL."""
    host: str = opened.getsockname()[0]
    return f"[{host}]" if ":" in host else host


def url_of(opened: socket.socket) -> str:
    """The address and the port of a socket as the beginning of a URL."""
    return f"http://{name_of(opened)}:{opened.getsockname()[1]}"


def server_of(app: Any) -> Any:
    """The uvicorn server of an ASGI application; `end_by_signal` ends it."""
    import uvicorn

    protocol: Any = _protocol  # stands for the class
    server: Any = uvicorn.Server(
        uvicorn.Config(
            _until_the_end(app), http=protocol, lifespan="off", ws="none", log_config=None, access_log=False,
            limit_concurrency=CONNECTIONS_MAX, timeout_graceful_shutdown=END_S_MAX, server_header=False,
        )
    )  # fmt: skip
    # It would end the process by the signal, before the memory is closed.
    server.capture_signals = nullcontext
    return server


def _protocol(**given: Any) -> Any:
    """The HTTP protocol of a connection, which is closed when its client is idle: it would keep a place.

    Where a host brings httptools, uvicorn would take that. It keeps a header of any size.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    made: Any = H11Protocol(**given)
    made.loop.call_later(HEADER_S_MAX, _close_idle, made, (None, True, 0), 0)
    return made


def _close_idle(protocol: Any, before: Any, idle_s: float) -> None:
    """Close a connection that has no whole header for HEADER_S_MAX, or no byte of an answer taken for TAKE_S_MAX.

    `before` is its state HEADER_S_MAX ago, since which time `idle_s` has passed.
    """
    last, transport = protocol.cycle, protocol.transport
    answered, left = last is None or last.response_complete, transport.get_write_buffer_size()
    state = (last, answered, left)
    idle_s = idle_s + HEADER_S_MAX if state == before and (answered or left) else 0
    if idle_s >= (TAKE_S_MAX if left else HEADER_S_MAX):
        transport.abort()
    elif not transport.is_closing():
        protocol.loop.call_later(HEADER_S_MAX, _close_idle, protocol, state, idle_s)


def _until_the_end(app: Any) -> Any:
    """An application whose requests end with 503 when the server cancels them, END_S_MAX after a signal."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # an answer has begun
                await send({"type": "http.response.start", "status": 503})
                await send({"type": "http.response.body"})

    return answer


def endings() -> list[signal.Signals]:
    """The signals that end a server; SIGHUP, of a closed terminal, unless it is ignored, as under `nohup`."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hangup]


async def end_by_signal(server: Any, *, task_status: TaskStatus[None]) -> None:
    """End a server when one of `endings` comes; started when it listens for them."""
    with anyio.open_signal_receiver(*endings()) as signals:
        task_status.started()
        async for _ in signals:
            server.should_exit = True


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        raise BadArgument(f"--host is {host[:60]!r}; give localhost or an address such as 127.0.0.1") from None
