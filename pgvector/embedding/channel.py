"""POST requests to one endpoint over connections that are kept alive, each limited in time and in size."""

from __future__ import annotations

import logging
import ssl
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
PROXY_VARIABLES = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"

_parsed = lru_cache(maxsize=64)(httpx.URL)

# It tells the password of a SOCKS proxy.
logging.getLogger("httpcore.socks").setLevel(logging.INFO)


class ChannelClosed(Exception):
    """The channel was closed before the answer came."""


class AnswerTooLarge(Exception):
    """The answer has more bytes than it may have."""


class Channel:
    """A way to one endpoint, by the proxy that the environment names for it. Safe for any thread.

    It is httpx's transport without its client, which takes as long again for a short request and logs the whole
    address. `key` is sent as a bearer token; without one, what stands before the @ of the address is. Raises
    SettingsError for a proxy or certificates of the environment that cannot be used.
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
        self._proxy = "" if transport else _proxy(address)
        self._certificates = _certificates(address)
        self._transport = transport or self._opened()
        self._closed = False

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
        except AnswerTooLarge:
            raise
        except Exception as error:
            if self._closed:
                raise ChannelClosed from None
            if isinstance(error, httpx.HTTPError):
                raise
            # What lies below raises errors of its own for odd names of hosts and odd proxies.
            raise httpx.ConnectError(type(error).__name__) from None

    def close(self) -> None:
        """Close the connections. A call under way ends with ChannelClosed, at its deadline at the latest. Safe to call
        twice.
        """
        self._closed = True
        self._transport.close()

    def _opened(self) -> httpx.HTTPTransport:
        limits = httpx.Limits(
            max_connections=CONNECTIONS_MAX, max_keepalive_connections=IDLE_CONNECTIONS_MAX, keepalive_expiry=IDLE_S_MAX
        )
        try:
            transport = httpx.HTTPTransport(limits=limits, verify=self._certificates, proxy=self._proxy or None)
        except (httpx.InvalidURL, ValueError, ImportError) as error:
            # The proxy's address may hold a password, so no part of it is repeated.
            raise SettingsError(
                f"the proxy that the environment names for embed_url cannot be used ({type(error).__name__}): mend "
                f"{PROXY_VARIABLES}, or name the host of embed_url in NO_PROXY; one that is socks5:// needs the "
                "package socksio"
            ) from None
        enforce(transport, self._deadline)
        return transport

    def _exchange(self, url: str, payload: bytes, bytes_max: int, deadline: float) -> tuple[int, bytes]:
        if self._closed:
            raise ChannelClosed
        left = deadline - time.monotonic()
        if left <= 0:
            raise httpx.ReadTimeout("no time left")
        limits = {"timeout": httpx.Timeout(left).as_dict()}
        request = httpx.Request("POST", _parsed(url), headers=self._headers, content=payload, extensions=limits)
        content, transport = bytearray(), self._transport
        try:
            with self._deadline.until(deadline), closing(transport.handle_request(request)) as response:
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > bytes_max:
                        raise AnswerTooLarge
                    if time.monotonic() > deadline:
                        raise httpx.ReadTimeout("the body came too slowly")
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if self._proxy and transport is self._transport:
                # httpcore never gives back the place of a connection that fails behind the proxy.
                self._transport = self._opened()
            raise
        finally:
            if self._closed:
                # It may have opened a connection after the others were closed.
                transport.close()
        return response.status_code, bytes(content)


def _authorization(address: httpx.URL, key: str) -> dict[str, str]:
    if key:
        return {"Authorization": f"Bearer {key}"}
    if address.username:
        return {"Authorization": "Basic " + b64encode(f"{address.username}:{address.password}".encode()).decode()}
    return {}


def _certificates(address: httpx.URL) -> ssl.SSLContext:
    """Whom to trust, which is asked of the environment only where it counts."""
    if address.scheme != "https":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise SettingsError(
            f"the certificates that the environment names cannot be read ({type(error).__name__}): mend SSL_CERT_FILE "
            "or SSL_CERT_DIR"
        ) from None


def _proxy(address: httpx.URL) -> str:
    """The address of the proxy. Empty for this machine's own services, which no proxy can see."""
    named = getproxies()
    without = {item.strip() for item in named.get("no", "").split(",")}
    # NO_PROXY names hosts, or hosts with their port.
    hosts = address.host, address.netloc.decode()
    if _is_loopback(address.host) or "*" in without or any(map(proxy_bypass, hosts)):
        return ""
    found = named.get(address.scheme) or named.get("all") or ""
    return f"http://{found}" if found and "://" not in found else found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
