"""POST requests to one endpoint over connections that are kept alive, each limited in time and in size."""

from __future__ import annotations

import time
from base64 import b64encode
from contextlib import closing
from functools import lru_cache
from ipaddress import ip_address
from urllib.request import getproxies, proxy_bypass

import httpx

from ..errors import SettingsError
from ..version import __version__
from .deadlines import Deadline, enforce

CONNECTIONS_MAX, IDLE_CONNECTIONS_MAX, IDLE_S_MAX = 8, 4, 30.0

_parsed = lru_cache(maxsize=64)(httpx.URL)


class ChannelClosed(Exception):
    """The channel was closed before the answer came."""


class AnswerTooLarge(Exception):
    """The answer has more bytes than it may have."""


class Channel:
    """A way to one endpoint, by the proxy that the environment names for it. Safe for any thread.

    It is httpx's transport without its client, which takes as long again for a short request and logs the whole
    address. `key` is sent as a bearer token; without one, what stands before the @ of the address is. Raises
    SettingsError for a proxy that cannot be used.
    """

    def __init__(self, address: httpx.URL, key: str = "", transport: httpx.BaseTransport | None = None) -> None:
        self._headers = httpx.Headers(
            {
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
                "User-Agent": f"hermes-memory-pgvector/{__version__}",
                **_authorization(address, key),
            }
        )
        self._deadline = Deadline()
        self._transport = transport or _transport(address)
        self._closed = False
        enforce(self._transport, self._deadline)

    def post(self, url: str, payload: bytes, bytes_max: int, deadline: float) -> tuple[int, bytes]:
        """The status and the body of the answer, which must be there at `deadline` on the monotonic clock.

        Raises httpx.HTTPError, AnswerTooLarge past `bytes_max`, and ChannelClosed.
        """
        try:
            try:
                return self._exchange(url, payload, bytes_max, deadline)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                # The endpoint may have closed an idle connection just as it was taken; a fresh one tells.
                return self._exchange(url, payload, bytes_max, deadline)
        except (httpx.HTTPError, RuntimeError):
            if self._closed:
                raise ChannelClosed from None
            raise

    def close(self) -> None:
        """Close the connections; a call under way ends with ChannelClosed. Safe to call twice."""
        self._closed = True
        self._transport.close()

    def _exchange(self, url: str, payload: bytes, bytes_max: int, deadline: float) -> tuple[int, bytes]:
        if self._closed:
            raise ChannelClosed
        left = deadline - time.monotonic()
        if left <= 0:
            raise httpx.ReadTimeout("no time left")
        limits = {"timeout": httpx.Timeout(left).as_dict()}
        request = httpx.Request("POST", _parsed(url), headers=self._headers, content=payload, extensions=limits)
        content = bytearray()
        with self._deadline.until(deadline), closing(self._transport.handle_request(request)) as response:
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > bytes_max:
                    raise AnswerTooLarge
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("the body came too slowly")
        return response.status_code, bytes(content)


def _authorization(address: httpx.URL, key: str) -> dict[str, str]:
    if key:
        return {"Authorization": f"Bearer {key}"}
    if address.username:
        return {"Authorization": "Basic " + b64encode(f"{address.username}:{address.password}".encode()).decode()}
    return {}


def _transport(address: httpx.URL) -> httpx.HTTPTransport:
    limits = httpx.Limits(
        max_connections=CONNECTIONS_MAX, max_keepalive_connections=IDLE_CONNECTIONS_MAX, keepalive_expiry=IDLE_S_MAX
    )
    try:
        return httpx.HTTPTransport(limits=limits, proxy=_proxy(address))
    except (httpx.InvalidURL, ValueError, ImportError) as error:
        # The proxy's address may hold a password, so no part of it is repeated.
        raise SettingsError(
            f"the proxy that the environment names for embed_url cannot be used ({type(error).__name__}): mend "
            f"{address.scheme.upper()}_PROXY or ALL_PROXY, or name {address.host} in NO_PROXY; one that is "
            "socks5:// needs the package socksio"
        ) from None


def _proxy(address: httpx.URL) -> str | None:
    """The address of the proxy. None for this machine's own services, which no proxy can see."""
    # NO_PROXY names hosts, or hosts with their port.
    if _is_loopback(address.host) or any(map(proxy_bypass, (address.host, address.netloc.decode()))):
        return None
    named = getproxies()
    found = named.get(address.scheme) or named.get("all")
    return f"http://{found}" if found and "://" not in found else found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
