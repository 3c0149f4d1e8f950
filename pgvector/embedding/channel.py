"""POST requests to one endpoint over connections that are kept alive, each limited in time and in size."""

from __future__ import annotations

import importlib.util
import logging
import ssl
import time
import zlib
from base64 import b64encode
from contextlib import closing, suppress
from functools import lru_cache, partial
from ipaddress import ip_address
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from ..errors import SettingsError
from ..version import __version__
from .deadlines import Deadline, PunctualNetwork

CONNECTIONS_MAX, IDLE_CONNECTIONS_MAX, IDLE_S_MAX = 8, 4, 30.0
# So many times one behind the other an answer may be packed.
PACKED_MAX = 3
PROXY_VARIABLES = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"

# It tells the password of a SOCKS proxy.
logging.getLogger("httpcore.socks").setLevel(logging.INFO)


class ChannelFailed(Exception):
    """There is no whole answer; the message tells why, and nothing of the address."""


class ChannelClosed(ChannelFailed):
    """The channel was closed before the answer came."""


class AnswerTooLate(ChannelFailed):
    """The answer was not there at its deadline."""


class AnswerTooLarge(ChannelFailed):
    """The answer has more bytes than it may have."""


class Channel:
    """A way to one endpoint, by the proxy that the environment names for it. Safe for any thread.

    It is the connection pool below httpx: a client around it takes as long again for a short request, and logs the
    whole address. `key` is sent as a bearer token; without one, what stands before the @ of the address is. Raises
    SettingsError for a proxy or certificates of the environment that cannot be used.
    """

    def __init__(self, address: httpx.URL, key: str = "", pool: httpcore.ConnectionPool | None = None) -> None:
        self._headers = [
            (b"Accept", b"application/json"),
            (b"Accept-Encoding", b"identity"),
            (b"Content-Type", b"application/json"),
            (b"User-Agent", f"hermes-memory-pgvector/{__version__}".encode()),
            *_authorization(address, key),
        ]
        self._deadline = Deadline()
        self._proxy = None if pool else _proxy(address)
        self._certificates = _certificates(address)
        self._pool = pool or self._opened()
        self._closed = False

    def post(self, url: str, payload: bytes, bytes_max: int, deadline: float) -> tuple[int, bytes]:
        """The status and the body of the answer, which must be there at `deadline` on the monotonic clock.

        Raises AnswerTooLate, AnswerTooLarge past `bytes_max`, ChannelClosed, and else ChannelFailed.
        """
        try:
            try:
                return self._exchange(url, payload, bytes_max, deadline)
            except (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError):
                # The endpoint may have closed an idle connection just as it was taken; a fresh one tells.
                return self._exchange(url, payload, bytes_max, deadline)
        except ChannelFailed:
            raise
        except Exception as error:  # noqa: BLE001  (odd names of hosts and odd proxies raise errors of their own)
            raise self._failure(error) from None

    def close(self) -> None:
        """Close the connections. A call under way ends with ChannelClosed, at its deadline at the latest. Safe to call
        twice.
        """
        self._closed = True
        self._pool.close()

    def _opened(self) -> httpcore.ConnectionPool:
        pool = partial(
            httpcore.ConnectionPool,
            ssl_context=self._certificates,
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=IDLE_CONNECTIONS_MAX,
            keepalive_expiry=IDLE_S_MAX,
            network_backend=PunctualNetwork(self._deadline),
        )
        if self._proxy is None:
            return pool()
        try:
            return pool(proxy=self._proxy)
        except TypeError:
            raise SettingsError(
                "a proxy before embed_url needs httpcore 1.0.7 or later: pip install -U httpcore"
            ) from None

    def _failure(self, error: Exception) -> ChannelFailed:
        if self._closed:
            return ChannelClosed()
        if isinstance(error, httpcore.TimeoutException):
            return AnswerTooLate()
        return ChannelFailed(str(error) if isinstance(error, httpcore.ConnectError) else type(error).__name__)

    def _exchange(self, url: str, payload: bytes, bytes_max: int, deadline: float) -> tuple[int, bytes]:
        if self._closed:
            raise ChannelClosed
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise AnswerTooLate
        target, host = _target(url)
        request = httpcore.Request(
            "POST",
            target,
            headers=[(b"Host", host), *self._headers, (b"Content-Length", str(len(payload)).encode())],
            content=payload,
            extensions={"timeout": dict.fromkeys(("connect", "read", "write", "pool"), left_s)},
        )
        content, pool = bytearray(), self._pool
        try:
            with self._deadline.until(deadline), closing(pool.handle_request(request)) as response:
                for chunk in response.iter_stream():
                    content += chunk
                    if len(content) > bytes_max:
                        raise AnswerTooLarge
                    if time.monotonic() > deadline:
                        raise AnswerTooLate
        except (httpcore.ConnectError, httpcore.ConnectTimeout, UnicodeError):
            if self._proxy and pool is self._pool:
                # It never gives back the place of a connection that fails behind the proxy.
                self._pool = self._opened()
            raise
        finally:
            if self._closed:
                # It may have opened a connection after the others were closed.
                pool.close()
        return response.status, _plain(bytes(content), response, bytes_max)


@lru_cache(maxsize=64)
def _target(url: str) -> tuple[httpcore.URL, bytes]:
    """The address of a request as it is sent, and the name of its host."""
    parsed = httpx.URL(url)
    return _raw(parsed), parsed.netloc


def _raw(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _plain(content: bytes, response: httpcore.Response, bytes_max: int) -> bytes:
    """The body of an answer, unpacked where it was packed though nobody asked for it."""
    told = b",".join(value for name, value in response.headers if name.lower() == b"content-encoding")
    for encoding in reversed(told.lower().split(b",")[:PACKED_MAX]):
        if encoding.strip() in (b"gzip", b"x-gzip", b"deflate"):
            content = _unpacked(content, bytes_max)
    return content


def _unpacked(content: bytes, bytes_max: int) -> bytes:
    # With a header, as it should be, and without one, as some send it.
    for window_bits in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
        with suppress(zlib.error):
            plain = zlib.decompressobj(window_bits).decompress(content, bytes_max + 1)
            if len(plain) > bytes_max:
                raise AnswerTooLarge
            return plain
    raise ChannelFailed("the answer is packed and damaged")


def _authorization(address: httpx.URL, key: str) -> list[tuple[bytes, bytes]]:
    if key:
        return [(b"Authorization", f"Bearer {key}".encode())]
    if address.username:
        told = b64encode(f"{address.username}:{address.password}".encode())
        return [(b"Authorization", b"Basic " + told)]
    return []


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


def _proxy(address: httpx.URL) -> httpcore.Proxy | None:
    """The proxy to go by, if any. Raises SettingsError."""
    named = _named_proxy(address)
    if not named:
        return None
    try:
        proxy = httpx.Proxy(named)
        if proxy.url.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
            raise ImportError
        return httpcore.Proxy(_raw(proxy.url), auth=proxy.raw_auth)
    except (httpx.InvalidURL, ValueError, ImportError) as error:
        # The proxy's address may hold a password, so no part of it is repeated.
        raise SettingsError(
            f"the proxy that the environment names for embed_url cannot be used ({type(error).__name__}): mend "
            f"{PROXY_VARIABLES}, or name the host of embed_url in NO_PROXY; one that is socks5:// needs the "
            "package socksio"
        ) from None


def _named_proxy(address: httpx.URL) -> str:
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
