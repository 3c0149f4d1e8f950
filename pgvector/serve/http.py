"""The server over streamable HTTP on loopback, for clients that each have a token.

The server keeps nothing of a session: the id that it gives to a client proves by itself that it belongs to the token.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import sys
from collections.abc import Callable
from typing import Any

import anyio

from ..errors import BadArgument, PgvectorError
from ..session.themes import stored_name
from ..settings import Settings
from ..text.keep import Source
from . import listener, sdk
from .access import Access, themes_of
from .handlers import Handlers
from .tokens import Token, Tokens

PATH = "/mcp"
THEME_HEADER = b"x-hermes-session-key"
SESSION_HEADER = b"mcp-session-id"
BODY_BYTES_MAX = 4 << 20  # version 2 of the SDK takes no more
BODY_S_MAX = 30
_ACCESS = "hermes_pgvector.access"

log = logging.getLogger("hermes.pgvector")


class _Rejected(Exception):
    """An HTTP answer that is not the protocol's."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers


def access(scope: sdk.Values) -> Access:
    """Whom a request speaks for that `App` has admitted."""
    found: Access = scope[_ACCESS]
    return found


class App:
    """The ASGI application: admits a request by its token, and hands it to the SDK."""

    def __init__(self, answer: Callable[..., Any], tokens: Tokens, settings: Settings) -> None:
        self._answer, self._tokens, self._settings = answer, tokens, settings

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, value)
        try:
            token = self._token(scope, headers)
            session = _session(headers, token)
            admitted = self._access(token, headers, session)
            body = sdk.storable(await _body(receive)).decode("utf-8", "replace")
            opens = _opens(body)
        except _Rejected as rejected:
            await _reject(send, rejected)
            return
        if opens:
            send = _with_header(send, SESSION_HEADER, _new_session(token).encode())
        await self._answer({**scope, _ACCESS: admitted}, _replayed(body.encode(), receive), send)

    def _token(self, scope: sdk.Values, headers: dict[bytes, bytes]) -> Token:
        if scope["path"] != PATH:
            raise _Rejected(404, f"the memory is at {PATH}")
        if scope["method"] != "POST":
            raise _Rejected(405, "this server sends nothing of its own accord", allow="POST")
        kind, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        try:
            token = self._tokens.of(secret.strip()) if kind.lower() == "bearer" else None
        except PgvectorError as error:
            log.warning("no client is admitted: %s", error)
            raise _Rejected(503, "the tokens cannot be read; the log of this server says why") from None
        if token is None:
            challenge = {"www-authenticate": "Bearer"}
            raise _Rejected(401, "a valid bearer token is needed: hermes-pgvector mcp token add", **challenge)
        return token

    def _access(self, token: Token, headers: dict[bytes, bytes], session: str) -> Access:
        """The themes of the token, of which the header may choose the one to write to."""
        try:
            themes = themes_of(token.themes, self._settings)
        except BadArgument as error:
            raise _Rejected(403, str(error)) from None
        wanted = headers.get(THEME_HEADER, b"").decode("utf-8", "replace").strip()
        chosen = stored_name(wanted, self._settings) if wanted else themes[0]
        if chosen not in themes:
            raise _Rejected(403, "the theme of X-Hermes-Session-Key is not one of this token")
        others = (theme for theme in themes if theme != chosen)
        source = Source(platform="mcp", authors=(token.name or token.id,))
        return Access(themes=(chosen, *others), session_id=f"mcp-{session or token.id}", source=source)


def _new_session(token: Token) -> str:
    nonce = secrets.token_hex(16)
    return nonce + _proof(nonce, token)


def _session(headers: dict[bytes, bytes], token: Token) -> str:
    """The id of the session without its proof; empty for none. One of another token is as unknown as any other."""
    given = headers.get(SESSION_HEADER, b"").decode("latin-1")
    nonce, proof = given[:32], given[32:]
    if given and not hmac.compare_digest(proof.encode(), _proof(nonce, token).encode()):
        raise _Rejected(404, "there is no such session; begin a new one")
    return nonce


def _proof(nonce: str, token: Token) -> str:
    return hmac.new(token.sha256.encode(), nonce.encode(), "sha256").hexdigest()[:32]


def _opens(message: str) -> bool:
    """Whether a message begins a session."""
    if flaw := sdk.flaw(message):
        raise _Rejected(400, sdk.refusal(message, *flaw), **{"content-type": "application/json"})
    return bool(sdk.parsed(message).get("method") == "initialize")


async def _body(receive: Any) -> bytes:
    """The whole body of a request."""
    body, more = bytearray(), True
    with anyio.move_on_after(BODY_S_MAX):
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > BODY_BYTES_MAX:
                raise _Rejected(413, f"a request may have {BODY_BYTES_MAX} bytes")
    if more:
        raise _Rejected(408, f"the request was not complete after {BODY_S_MAX} s")
    return bytes(body)


def _replayed(body: bytes, receive: Any) -> Callable[[], Any]:
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return left.pop() if left else await receive()

    return replay


def _with_header(send: Any, name: bytes, value: bytes) -> Callable[[Any], Any]:
    async def extended(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            message = {**message, "headers": [*message["headers"], (name, value)]}
        await send(message)

    return extended


async def _reject(send: Any, rejected: _Rejected) -> None:
    headers = {"content-type": "text/plain; charset=utf-8", **rejected.headers}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": rejected.status, "headers": encoded})
    await send({"type": "http.response.body", "body": f"{rejected}\n".encode()})


def serve(handlers: Handlers, tokens: Tokens, settings: Settings, opened: socket.socket) -> None:
    """Answer clients until a signal of `listener.endings` comes."""
    anyio.run(_serve, handlers, tokens, settings, opened)


async def _serve(handlers: Handlers, tokens: Tokens, settings: Settings, opened: socket.socket) -> None:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings

    # Against DNS rebinding: a page of a browser that resolves its own name to this machine. Port 80 is not named.
    names = {*listener.LOCAL, listener.name_of(opened)}
    hosts = [f"{name}{port}" for name in names for port in ("", ":*")]
    local = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])
    manager = StreamableHTTPSessionManager(
        handlers.server(), json_response=True, stateless=True, security_settings=local
    )
    app: Any = App(manager.handle_request, tokens, settings)
    server = listener.server_of(app)
    async with manager.run(), anyio.create_task_group() as tasks:
        await tasks.start(listener.end_by_signal, server)
        tasks.start_soon(handlers.wake)
        print(f"serving the memory at {listener.url_of(opened)}{PATH}", file=sys.stderr, flush=True)
        await server.serve(sockets=[opened])
        tasks.cancel_scope.cancel()
