"""Requests to one endpoint over kept-alive connections, limited in total time and in answer size."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
import zlib
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.request import getproxies, proxy_bypass

import httpx

from ..errors import EmbedderMismatch, EmbedderUnavailable, SettingsError
from ..model import now
from ..version import __version__

IDLE_CONNECTIONS_MAX, IDLE_S_MAX = 4, 30.0
RETRY_AFTER_S_MAX = 60.0
PROXY_VARIABLES = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"

# At DEBUG this logger prints the password of a SOCKS proxy.
logging.getLogger("httpcore.socks").setLevel(logging.INFO)


class Answer(NamedTuple):
    """The status and the body of an answer, and for how many seconds it asks to wait, at most RETRY_AFTER_S_MAX."""

    status: int
    body: bytes
    wait_s: float = 0.0

    @property
    def limited(self) -> bool:
        """Whether the endpoint takes no more requests for now."""
        return self.status == httpx.codes.TOO_MANY_REQUESTS or (
            self.status == httpx.codes.SERVICE_UNAVAILABLE and self.wait_s > 0
        )


class _Call(threading.local):
    """The call that this thread makes. `deadline` is its time limit on the monotonic clock, 0 outside of calls."""

    deadline = 0.0

    @property
    def left_s(self) -> float:
        """The seconds until the deadline. Raises TimeoutError after it."""
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


_call = _Call()


class _Socket(socket.socket):
    """A socket whose every wait ends at the deadline of the call.

    httpx limits each wait for the network, but not their sum, so an endpoint that sends a byte now and then could hold
    a call forever. httpx sets the timeout of the socket before each wait.
    """

    __slots__ = ()

    def settimeout(self, _value: float | None) -> None:
        super().settimeout(_call.left_s)


class _TlsSocket(ssl.SSLSocket):
    """The same for TLS."""

    def settimeout(self, _value: float | None) -> None:
        super().settimeout(_call.left_s)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        # For TLS inside the TLS of a proxy, httpx waits several times after it has set the timeout.
        self.settimeout(None)
        return super().recv(buflen, flags)


_LIMITED: dict[type, type] = {socket.socket: _Socket, ssl.SSLSocket: _TlsSocket}


def _limit_socket(_event: str, info: dict[str, Any]) -> None:
    """Limit a socket that httpx has opened, as its `trace` extension reports it."""
    stream: Any = info.get("return_value")
    if hasattr(stream, "get_extra_info"):
        opened = stream.get_extra_info("socket")
        if type(opened) in _LIMITED:
            opened.__class__ = _LIMITED[type(opened)]


class HttpClient:
    """Sends requests to one endpoint, through the proxy that the environment names for it. Safe for any thread.

    It uses transports of httpx without a client, whose cookies and redirects it does not need.
    `key` is sent as a bearer token; without a key, the user and password of the address are sent. Error messages and
    logs contain neither, nor the path, the query or the payload; they name the `setting` of the address. `transport`
    replaces the network in tests. Raises SettingsError for a proxy or certificates of the environment that cannot be
    used.
    """

    def __init__(
        self,
        address: httpx.URL,
        key: str = "",
        transport: httpx.BaseTransport | None = None,
        *,
        setting: str = "embed_url",
    ) -> None:
        self._setting = setting
        self.host = f"{address.host}:{address.port}" if address.port else address.host
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": f"hermes-memory-pgvector/{__version__}",
        }
        if key:
            headers["Authorization"] = f"Bearer {key}"
        elif address.username:
            named = b64encode(f"{address.username}:{address.password}".encode()).decode()
            headers["Authorization"] = f"Basic {named}"
        self._headers = httpx.Headers(headers)
        self._make_transport: Callable[[], httpx.BaseTransport] = partial(
            httpx.HTTPTransport,
            verify=_certificates(address),
            proxy=_proxy(address),
            limits=httpx.Limits(max_connections=1, keepalive_expiry=IDLE_S_MAX),
        )
        if transport is not None:
            self._make_transport = lambda: transport
        self._closed = False
        self._idle = [self._new_transport()]

    def request(self, method: str, url: httpx.URL | str, payload: bytes, bytes_max: int, deadline: float) -> Answer:
        """The answer, received before `deadline` on the monotonic clock.

        The deadline holds for the sum of all waits, except that name resolution has no limit and each address of a
        name may take half of the time to connect. Raises EmbedderUnavailable, or EmbedderMismatch for an answer of
        more than `bytes_max` bytes.
        """
        started = time.monotonic()
        _call.deadline = deadline
        try:
            try:
                response, body = self._exchange(method, url, payload, bytes_max)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                # The endpoint may have closed an idle connection at the moment it was used.
                response, body = self._exchange(method, url, payload, bytes_max)
        except (TimeoutError, httpx.TimeoutException):
            waited_s = time.monotonic() - started
            raise EmbedderUnavailable(f"{self.host} did not answer within {waited_s:.1f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, SettingsError, OSError, ValueError) as error:
            reason = str(error) if isinstance(error, httpx.ConnectError | SettingsError) else type(error).__name__
            raise EmbedderUnavailable(f"{self.host} cannot be reached: {reason}") from None
        finally:
            _call.deadline = 0.0
        if len(body) <= bytes_max:
            body = self._decompressed(body, response.headers.get("Content-Encoding", ""), bytes_max)
        if len(body) > bytes_max:
            raise EmbedderMismatch(f"{self.host} answered more than {bytes_max} bytes; check {self._setting}")
        return Answer(response.status_code, body, _wait_s(response.headers.get("Retry-After", "")))

    def close(self) -> None:
        """Close the idle connections. A call that is running closes its own when it ends. Safe to call twice."""
        self._closed = True
        while transport := self._take_idle():
            transport.close()

    def _exchange(
        self, method: str, url: httpx.URL | str, payload: bytes, bytes_max: int
    ) -> tuple[httpx.Response, bytes]:
        """The answer and its body, still compressed if it came so; at most one chunk more than `bytes_max`.

        A connection serves one call at a time, and is closed after a failure.
        """
        if self._closed:
            raise EmbedderUnavailable(f"the client of {self._setting} is closed")
        left_s = _call.left_s
        # A name can have several addresses. The first one that does not answer leaves time for the second.
        limits = {"connect": left_s / 2, "read": left_s, "write": left_s, "pool": left_s}
        extensions = {"timeout": limits, "trace": _limit_socket}
        request = httpx.Request(method, url, headers=self._headers, content=payload, extensions=extensions)
        transport = self._take_idle() or self._new_transport()
        try:
            with closing(transport.handle_request(request)) as response:
                body = bytearray()
                for chunk in response.iter_raw():
                    body += chunk
                    if len(body) > bytes_max:
                        break
        except BaseException:
            transport.close()
            raise
        self._idle.append(transport)
        if self._closed or len(self._idle) > IDLE_CONNECTIONS_MAX:
            surplus = self._take_idle()
            if surplus:
                surplus.close()
        return response, bytes(body)

    def _take_idle(self) -> httpx.BaseTransport | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _new_transport(self) -> httpx.BaseTransport:
        try:
            return self._make_transport()
        except (httpx.InvalidURL, ValueError, ImportError) as error:
            # The proxy's address may contain a password, so the message repeats no part of it.
            raise SettingsError(
                f"the proxy that the environment names for {self._setting} cannot be used ({type(error).__name__}): "
                f"correct {PROXY_VARIABLES}, or name the host of {self._setting} in NO_PROXY; a socks5:// proxy needs "
                "the package socksio"
            ) from None

    def _decompressed(self, body: bytes, encoding: str, bytes_max: int) -> bytes:
        """The body, decompressed to at most `bytes_max` + 1 bytes if the endpoint compressed it without being asked."""
        if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
            return body
        try:
            return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, bytes_max + 1)
        except zlib.error:
            raise EmbedderUnavailable(f"{self.host} sent a damaged compressed answer") from None


def _wait_s(retry_after: str) -> float:
    """The seconds of a header `Retry-After`, which has these or a date (RFC 9110, 10.2.3); 0 for anything else."""
    try:
        if retry_after.strip().isdecimal():
            wait_s = float(retry_after)
        else:
            wait_s = (parsedate_to_datetime(retry_after) - now()).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(RETRY_AFTER_S_MAX, max(0.0, wait_s))


def _proxy(address: httpx.URL) -> str | None:
    """The proxy that the environment names for this address; None for this machine, whose services none can reach."""
    proxies = getproxies()
    found = proxies.get(address.scheme) or proxies.get("all")
    unproxied = [name.strip() for name in proxies.get("no", "").split(",")]
    if not found or "*" in unproxied or _is_loopback(address.host) or proxy_bypass(address.netloc.decode()):
        return None
    return found if "://" in found else f"http://{found}"


def _certificates(address: httpx.URL) -> ssl.SSLContext:
    """The certificates to trust. The environment is read for https only."""
    if address.scheme != "https":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise SettingsError(
            f"the certificates that the environment names cannot be read ({type(error).__name__}): correct "
            "SSL_CERT_FILE or SSL_CERT_DIR"
        ) from None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
