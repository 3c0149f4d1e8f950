"""POST requests to one endpoint over kept-alive connections, limited in total time and in answer size."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
import zlib
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import httpx

from ..background import Watchdog
from ..errors import EmbedderMismatch, EmbedderUnavailable, SettingsError
from ..version import __version__

IDLE_CONNECTIONS_MAX, IDLE_S_MAX = 4, 30.0
PROXY_VARIABLES = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"

# At DEBUG this logger prints the password of a SOCKS proxy.
logging.getLogger("httpcore.socks").setLevel(logging.INFO)


class _LogFilter(threading.local):
    """Drops httpx's log lines in threads that run a request of ours: they show the address with its query."""

    active = False

    def __call__(self, _record: logging.LogRecord) -> bool:
        return not self.active


_log_filter = _LogFilter()
logging.getLogger("httpx").addFilter(_log_filter)


class _TimedOut(Exception):
    """The time limit of the call has passed."""


class _Connection:
    """One kept-alive connection, used by one call at a time, that is interrupted when the time limit passes.

    httpx limits each wait for the network, but not their sum, so an endpoint that sends a byte now and then could hold
    a call forever. Therefore the watchdog shuts the socket down at the time limit, which ends every read and write.
    httpx reports new sockets through its `trace` extension.
    """

    def __init__(self, client: httpx.Client, watchdog: Watchdog) -> None:
        self._client, self._watchdog = client, watchdog
        self._socket: socket.socket | None = None
        self._deadline = 0.0

    def post(self, url: str, payload: bytes, bytes_max: int, deadline: float) -> tuple[httpx.Response, bytes]:
        """The answer and its body, still compressed if it came so; at most one chunk more than `bytes_max`."""
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise _TimedOut
        self._deadline = deadline
        # A name can have several addresses. The first one that does not answer leaves time for the second.
        timeout = httpx.Timeout(left_s, connect=left_s / 2)
        extensions = {"trace": self._trace}
        stream = self._client.stream("POST", url, content=payload, timeout=timeout, extensions=extensions)
        _log_filter.active = True
        try:
            with self._watchdog.watch(deadline, self._interrupt), stream as response:
                body = bytearray()
                for chunk in response.iter_raw():
                    body += chunk
                    if len(body) > bytes_max or time.monotonic() > deadline:
                        break
            # After the interruption, a body of unknown length looks complete.
            if time.monotonic() > deadline:
                raise _TimedOut
            return response, bytes(body)
        finally:
            _log_filter.active = False

    def close(self) -> None:
        self._client.close()

    def _trace(self, _event: str, info: dict[str, Any]) -> None:
        stream: Any = info.get("return_value")
        if hasattr(stream, "get_extra_info"):
            self._socket = stream.get_extra_info("socket")
            # The watchdog may have run before there was a socket.
            if time.monotonic() > self._deadline:
                raise _TimedOut

    def _interrupt(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class HttpClient:
    """Sends requests to one endpoint, through the proxy that the environment names for it. Safe for any thread.

    `key` is sent as a bearer token; without a key, the user and password of the address are sent. Error messages and
    logs contain neither, nor the path, the query or the payload. `transport` replaces the network in tests. Raises
    SettingsError for a proxy or certificates of the environment that cannot be used.
    """

    def __init__(self, address: httpx.URL, key: str = "", transport: httpx.BaseTransport | None = None) -> None:
        self.host = f"{address.host}:{address.port}" if address.port else address.host
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": f"hermes-memory-pgvector/{__version__}",
        }
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._auth = (address.username, address.password) if address.username and not key else None
        self._transport = transport
        self._certificates = _certificates(address)
        # A proxy cannot reach the services of this machine.
        self._trust_env = not _is_loopback(address.host)
        self._watchdog = Watchdog()
        self._closed = False
        self._idle = [self._connection()]

    def post(self, url: str, payload: bytes, bytes_max: int, deadline: float) -> tuple[int, bytes]:
        """The status and the body of the answer, received before `deadline` on the monotonic clock.

        The deadline holds for the sum of all waits, except that name resolution has no limit and each address of a
        name may take half of the time to connect. Raises EmbedderUnavailable, or EmbedderMismatch for an answer of
        more than `bytes_max` bytes.
        """
        started = time.monotonic()
        try:
            try:
                response, body = self._exchange(url, payload, bytes_max, deadline)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                # The endpoint may have closed an idle connection at the moment it was used.
                response, body = self._exchange(url, payload, bytes_max, deadline)
        except (_TimedOut, httpx.TimeoutException):
            waited_s = time.monotonic() - started
            raise EmbedderUnavailable(f"{self.host} did not answer within {waited_s:.1f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, SettingsError, OSError, ValueError) as error:
            reason = str(error) if isinstance(error, httpx.ConnectError | SettingsError) else type(error).__name__
            raise EmbedderUnavailable(f"{self.host} cannot be reached: {reason}") from None
        if len(body) <= bytes_max:
            body = self._decompressed(body, response.headers.get("Content-Encoding", ""), bytes_max)
        if len(body) > bytes_max:
            raise EmbedderMismatch(f"{self.host} answered more than {bytes_max} bytes; check embed_url")
        return response.status_code, body

    def close(self) -> None:
        """Close the idle connections. A call that is running closes its own when it ends. Safe to call twice."""
        self._closed = True
        while connection := self._take_idle():
            connection.close()

    def _exchange(self, url: str, payload: bytes, bytes_max: int, deadline: float) -> tuple[httpx.Response, bytes]:
        if self._closed:
            raise EmbedderUnavailable("the embedder is closed")
        connection = self._take_idle() or self._connection()
        try:
            answer = connection.post(url, payload, bytes_max, deadline)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        if self._closed or len(self._idle) > IDLE_CONNECTIONS_MAX:
            surplus = self._take_idle()
            if surplus:
                surplus.close()
        return answer

    def _take_idle(self) -> _Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connection(self) -> _Connection:
        try:
            client = httpx.Client(
                headers=self._headers,
                auth=self._auth,
                verify=self._certificates,
                trust_env=self._trust_env,
                limits=httpx.Limits(max_connections=1, keepalive_expiry=IDLE_S_MAX),
                transport=self._transport,
            )
        except (httpx.InvalidURL, ValueError, ImportError) as error:
            # The proxy's address may contain a password, so the message repeats no part of it.
            raise SettingsError(
                f"the proxy that the environment names for embed_url cannot be used ({type(error).__name__}): correct "
                f"{PROXY_VARIABLES}, or name the host of embed_url in NO_PROXY; a socks5:// proxy needs the "
                "package socksio"
            ) from None
        return _Connection(client, self._watchdog)

    def _decompressed(self, body: bytes, encoding: str, bytes_max: int) -> bytes:
        """The body, decompressed to at most `bytes_max` + 1 bytes if the endpoint compressed it without being asked."""
        if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
            return body
        try:
            return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, bytes_max + 1)
        except zlib.error:
            raise EmbedderUnavailable(f"{self.host} sent a damaged compressed answer") from None


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
