"""Which requests are answered: by the name of the host, against DNS rebinding, by the method, and by the token."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...serve.listener import LOCAL

# They say whether the memory works, and nothing of what is in it.
OPEN_PATHS = ("/healthz", "/readyz")
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Admission:
    """The token, empty for none, and the names by which the page may be asked for besides those of this machine."""

    token: str = ""
    hosts: tuple[str, ...] = ()

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str, dict[str, str]] | None:
        """The status, the reason and the headers of a request that is not answered; None when it is."""
        if not self._named(headers.get("host", "")):
            return 421, "this name is not one of the page's; see --allow-host", {}
        if method not in ("GET", "HEAD"):
            return 405, "the page only reads", {"allow": "GET, HEAD"}
        if self.token and path not in OPEN_PATHS and not self._proven(headers.get("authorization", "")):
            challenge = {"www-authenticate": 'Basic realm="hermes-pgvector", charset="UTF-8"'}
            return 401, "the token is needed, as the password of any user or as a bearer token", challenge
        return None

    def _named(self, host: str) -> bool:
        name, mark, port = host.rpartition(":")
        if not mark or not port.isdecimal():
            name = host
        name = name.lower()
        # Rebinding needs a name; an address is what the browser was told. Without a token only this machine's count.
        return name in (*LOCAL, *map(str.lower, self.hosts)) or bool(self.token and _is_address(name))

    def _proven(self, authorization: str) -> bool:
        kind, _, given = authorization.partition(" ")
        if kind.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
            except (binascii.Error, ValueError):
                return False
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode("utf-8", "surrogatepass"), self.token.encode())


class Guard:
    """The ASGI application around another one: refuses what `Admission` refuses, and adds the headers of safety."""

    def __init__(self, app: Any, admission: Admission) -> None:
        self._app, self._admission = app, admission

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
        refusal = self._admission.refusal(scope["method"], scope["path"], headers)
        if refusal is None:
            await self._app(scope, receive, guarded)
            return
        status, reason, named = refusal
        named = {"content-type": "text/plain; charset=utf-8", **named}
        encoded = [(name.encode(), value.encode()) for name, value in named.items()]
        await guarded({"type": "http.response.start", "status": status, "headers": encoded})
        await guarded({"type": "http.response.body", "body": f"{reason}\n".encode()})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
