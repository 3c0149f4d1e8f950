"""Total time limits for HTTP.

httpcore limits the wait for each read, so an endpoint that sends one byte now and then holds a call for ever. Here
every operation on a socket gets only the time that is left of the whole call.
"""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore

WRITTEN_BYTES_MAX = 1 << 16


class Deadline(threading.local):
    """The moment, on the monotonic clock, when the calling thread's request must be over."""

    at: float = math.inf

    @contextmanager
    def until(self, at: float) -> Iterator[None]:
        self.at = at
        try:
            yield
        finally:
            self.at = math.inf

    def left(self, timeout_s: float | None) -> float:
        """The shorter of `timeout_s` and the time left; never 0, which would mean "do not block" to a socket.

        Raises httpcore.TimeoutException when none is left: what comes without a pause would else never meet its end.
        """
        left_s = self.at - time.monotonic()
        if left_s <= 0:
            raise httpcore.TimeoutException
        return max(0.001, min(math.inf if timeout_s is None else timeout_s, left_s, 3600.0))


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # A socket limits each of the sends that a buffer takes, not all of them.
        for start in range(0, len(buffer), WRITTEN_BYTES_MAX):
            self._inner.write(buffer[start : start + WRITTEN_BYTES_MAX], self._deadline.left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, self._deadline.left(timeout))
        return _Stream(inner, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class PunctualNetwork(httpcore.NetworkBackend):
    """The network of this machine, each operation of which is over at the deadline of the thread. Safe for any thread.

    Of a host with several addresses each is tried in its share of the time.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._inner = httpcore.SyncBackend()
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        addresses = _addresses(host, port)
        for waiting, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            # One that does not answer leaves the others their share of the time.
            share_s = self._deadline.left(timeout) / waiting
            try:
                stream = self._inner.connect_tcp(address, port, share_s, local_address, socket_options)
                return _Stream(stream, self._deadline)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if waiting == 1:
                    raise
        raise httpcore.ConnectError("the name has no address")


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
