"""The HTTP embedder with real sockets: servers on the loopback that hang, trickle, refuse and drop connections."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import ssl
import subprocess
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hermes_memory_pgvector.embedding.http_embedder import HttpEmbedder
from hermes_memory_pgvector.errors import EmbedderMismatch, EmbedderUnavailable, SettingsError
from hermes_memory_pgvector.settings import Settings

# Much longer than the time limits under test.
HOLD_S = 20.0


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self,
        respond: Callable[[BaseHTTPRequestHandler, bytes], None] | None = None,
        connect: Callable[[BaseHTTPRequestHandler], None] | None = None,
    ) -> None:
        self.connections = 0
        self.requests = 0
        self.targets: list[str] = []
        self.over = threading.Event()
        super().__init__(("127.0.0.1", 0), _handler(self, respond or _embed, connect))
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/api/embed"

    def close(self) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


def _handler(
    server: Server,
    respond: Callable[[BaseHTTPRequestHandler, bytes], None],
    connect: Callable[[BaseHTTPRequestHandler], None] | None,
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            server.connections += 1
            super().setup()

        def do_POST(self) -> None:
            server.requests += 1
            server.targets.append(self.path)
            respond(self, self.rfile.read(int(self.headers["Content-Length"])))

        def do_CONNECT(self) -> None:
            if connect is not None:
                connect(self)

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _embed(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    rows = [[float(len(text)), 1.0] for text in json.loads(body)["input"]]
    _send(handler, json.dumps({"embeddings": rows}).encode())


def _send(handler: BaseHTTPRequestHandler, content: bytes, encoding: str = "") -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    if encoding:
        handler.send_header("Content-Encoding", encoding)
    handler.end_headers()
    handler.wfile.write(content)


def _trickle(handler: BaseHTTPRequestHandler) -> None:
    ends = time.monotonic() + HOLD_S
    while time.monotonic() < ends and not handler.server.over.wait(0.05):  # type: ignore[attr-defined]
        handler.wfile.write(b" ")


@pytest.fixture
def served() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(
        respond: Callable[[BaseHTTPRequestHandler, bytes], None] | None = None,
        connect: Callable[[BaseHTTPRequestHandler], None] | None = None,
    ) -> Server:
        servers.append(Server(respond, connect))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for 127.0.0.1 and its key."""
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*command.split(), "-keyout", file, "-out", f"{file}.crt"], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


def _with_tls(server: Server, certificate: Path) -> str:
    """Let a server that has no connection yet speak TLS; returns its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server.url.replace("http:", "https:")


def made(url: str, **more: Any) -> HttpEmbedder:
    return HttpEmbedder(Settings(embed_url=url, embed_model="homemade", **more))


def _is_unavailable_in_time(embedder: HttpEmbedder, says: str) -> None:
    started = time.monotonic()
    with closing(embedder), pytest.raises(EmbedderUnavailable, match=says):
        embedder.embed_query("a", 0.3)
    assert time.monotonic() - started < HOLD_S / 2


def test_connections_are_kept_alive_and_shared_by_threads(served: Callable[..., Server]) -> None:
    server = served()
    with closing(made(server.url)) as embedder:
        for _ in range(10):
            embedder.embed_query("a", 5)
        assert (server.connections, server.requests) == (1, 10)
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda n: embedder.embed_query("x" * n, 5), range(1, 41)))
    assert [round(vector[0] / vector[1]) for vector in found] == list(range(1, 41))
    assert server.connections <= 8


def test_a_hanging_endpoint_is_abandoned_at_the_time_limit(served: Callable[..., Server]) -> None:
    server = served(lambda handler, body: handler.server.over.wait(HOLD_S))  # type: ignore[attr-defined]
    _is_unavailable_in_time(made(server.url), "did not answer within")


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nX-Slow: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9;extension=",
    ],
)
@pytest.mark.parametrize("tls", [False, True])
def test_an_endpoint_that_trickles_its_answer_is_abandoned_at_the_time_limit(
    served: Callable[..., Server], head: bytes, tls: bool, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trickle(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.wfile.write(head)
        _trickle(handler)

    server = served(trickle)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    url = _with_tls(server, certificate) if tls else server.url
    _is_unavailable_in_time(made(url), "did not answer within")


def test_an_endpoint_with_tls_answers(
    served: Callable[..., Server], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = served()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with closing(made(_with_tls(server, certificate))) as embedder:
        for _ in range(3):
            assert len(embedder.embed_query("a", 5)) == 2
    assert (server.connections, server.requests) == (1, 3)


def test_a_call_at_its_time_limit_does_not_interrupt_other_calls(served: Callable[..., Server]) -> None:
    def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if b"trickle" in body:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not handler.server.over.wait(0.05):  # type: ignore[attr-defined]
                handler.wfile.write(b" ")
        handler.server.over.wait(1.0)  # type: ignore[attr-defined]
        _embed(handler, body)

    server = served(respond)
    with closing(made(server.url)) as embedder, ThreadPoolExecutor(2) as threads:
        slow = threads.submit(embedder.embed_query, "slow", HOLD_S)
        with pytest.raises(EmbedderUnavailable, match="did not answer within"):
            embedder.embed_query("trickle", 0.3)
        assert len(slow.result(HOLD_S)) == 2
    assert server.requests == 2


def test_the_time_limit_holds_for_all_requests_of_a_call_together(served: Callable[..., Server]) -> None:
    def slow(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.server.over.wait(0.1)  # type: ignore[attr-defined]
        _embed(handler, body)

    server = served(slow)
    with closing(made(server.url, embed_batch_max=1)) as embedder, pytest.raises(EmbedderUnavailable):
        embedder.embed_passages(["a"] * 100, 0.5)
    assert server.requests < 20


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("Deflate", zlib.compress),
        ("identity", bytes),
    ],
)
def test_an_answer_that_is_compressed_without_request_is_decompressed(
    served: Callable[..., Server], encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    content = compress(json.dumps({"embeddings": [[3.0, 4.0]]}).encode())
    server = served(lambda handler, body: _send(handler, content, encoding))
    with closing(made(server.url)) as embedder:
        assert embedder.embed_query("a", 5) == pytest.approx([0.6, 0.8])


def test_a_compressed_answer_above_the_size_limit_is_refused(served: Callable[..., Server]) -> None:
    content = gzip.compress(b" " * 20_000_000)
    server = served(lambda handler, body: _send(handler, content, "gzip"))
    with (
        closing(made(server.url)) as embedder,
        pytest.raises(EmbedderMismatch, match="answered more than"),
    ):
        embedder.embed_query("a", 5)


def test_a_damaged_compressed_answer_makes_the_embedder_unavailable(served: Callable[..., Server]) -> None:
    content = gzip.compress(b'{"embeddings": [[3.0, 4.0]]}')[:-8] + b"not that."
    server = served(lambda handler, body: _send(handler, content, "gzip"))
    with closing(made(server.url)) as embedder, pytest.raises(EmbedderUnavailable, match="damaged"):
        embedder.embed_query("a", 5)


def test_an_answer_with_unknown_compression_is_a_mismatch(served: Callable[..., Server]) -> None:
    server = served(lambda handler, body: _send(handler, b"neither this nor that", "br"))
    with closing(made(server.url)) as embedder, pytest.raises(EmbedderMismatch, match="not JSON"):
        embedder.embed_query("a", 5)


def test_endless_informational_answers_are_abandoned_at_the_time_limit(served: Callable[..., Server]) -> None:
    def announce(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        while not server.over.is_set():
            handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 500)

    server = served(announce)
    _is_unavailable_in_time(made(server.url), "did not answer")


def test_an_endpoint_that_reads_slowly_is_abandoned_at_the_time_limit() -> None:
    def read_slowly(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            while not over.wait(0.1) and connection.recv(1 << 16):
                pass

    over = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        reader = threading.Thread(target=read_slowly, args=(listener,), daemon=True)
        reader.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/embed"
        texts = ["x" * 100_000] * 160
        started = time.monotonic()
        embedder = made(url, embed_chars_max=100_000, embed_batch_max=160)
        with closing(embedder), pytest.raises(EmbedderUnavailable, match="did not answer"):
            embedder.embed_passages(texts, 2.0)
        took_s = time.monotonic() - started
        over.set()
        reader.join(HOLD_S)
    assert took_s < HOLD_S / 4


def test_a_refused_connection_is_reported_at_once() -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _is_unavailable_in_time(made(f"http://127.0.0.1:{port}"), f"127.0.0.1:{port} cannot be reached")


def test_a_connection_that_was_closed_while_idle_fails_no_call(served: Callable[..., Server]) -> None:
    def answer_once(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        _embed(handler, body)
        handler.close_connection = True

    server = served(answer_once)
    with closing(made(server.url)) as embedder:
        for _ in range(5):
            embedder.embed_query("a", 5)
    assert server.connections == 5


def test_a_request_on_a_dropped_connection_is_retried_once(served: Callable[..., Server]) -> None:
    def drop_first(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.server.requests == 1:  # type: ignore[attr-defined]
            handler.close_connection = True
        else:
            _embed(handler, body)

    server = served(drop_first)
    with closing(made(server.url)) as embedder:
        embedder.embed_query("a", 5)
    assert server.requests == 2


def test_an_endpoint_that_always_drops_the_connection_is_unavailable(served: Callable[..., Server]) -> None:
    def drop(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.close_connection = True

    server = served(drop)
    _is_unavailable_in_time(made(server.url), "cannot be reached")
    assert server.requests == 2


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without proxy variables."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("no_proxy")
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_remote_endpoint_is_reached_through_the_proxy_of_the_environment(
    served: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, variable: str, scheme: str
) -> None:
    proxy = served()
    monkeypatch.setenv(variable, f"{scheme}127.0.0.1:{proxy.server_address[1]}")
    with closing(made("http://embedder.invalid/api/embed?key=secret")) as embedder:
        assert len(embedder.embed_query("a", 5)) == 2
    assert proxy.targets == ["http://embedder.invalid/api/embed?key=secret"]


@pytest.mark.usefixtures("no_proxy")
@pytest.mark.parametrize("hosts", ["*", "other, *", "embedder.invalid", ".invalid", "other,embedder.invalid:81"])
def test_a_host_in_no_proxy_is_reached_without_a_proxy(
    served: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, hosts: str
) -> None:
    proxy = served()
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.server_address[1]}")
    monkeypatch.setenv("NO_PROXY", hosts)
    outside = made("http://embedder.invalid:81/api/embed")
    with closing(outside), pytest.raises(EmbedderUnavailable, match="cannot be reached"):
        outside.embed_query("a", 5)
    assert proxy.targets == []


@pytest.mark.usefixtures("no_proxy")
def test_the_loopback_is_reached_without_a_proxy(
    served: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with closing(made(served().url)) as embedder:
        assert len(embedder.embed_query("a", 5)) == 2
    outside = made("http://embedder.invalid")
    with closing(outside), pytest.raises(EmbedderUnavailable, match="refused"):
        outside.embed_query("a", 5)


@pytest.mark.usefixtures("no_proxy")
@pytest.mark.parametrize("proxy", ["gopher://user:hunter2@proxy:70", "http://user:hunter2@proxy:port"])
def test_an_unusable_proxy_is_reported_without_its_password(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(
        SettingsError, match="HTTPS_PROXY or ALL_PROXY, or name the host of embed_url in NO_PROXY"
    ) as caught:
        made("https://embedder.invalid/v1")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://embedder.invalid/v1"])
@pytest.mark.parametrize("lost", ["/nowhere.pem", "/", "/etc/hostname"])
def test_unreadable_certificates_are_an_error_for_https_only(
    monkeypatch: pytest.MonkeyPatch, url: str, lost: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", lost)
    if url.startswith("http:"):
        _is_unavailable_in_time(made(url), "refused")
    else:
        with pytest.raises(SettingsError, match="correct SSL_CERT_FILE or SSL_CERT_DIR"):
            made(url)


@pytest.mark.usefixtures("no_proxy")
@pytest.mark.parametrize("url", ["http://ollama..lan:11434", f"http://{'a' * 64}.lan"])
def test_an_invalid_host_name_makes_the_embedder_unavailable(url: str) -> None:
    _is_unavailable_in_time(made(url), "cannot be reached")


@pytest.mark.usefixtures("no_proxy")
def test_failed_connections_through_a_proxy_do_not_use_up_connections(
    monkeypatch: pytest.MonkeyPatch, served: Callable[..., Server]
) -> None:
    def tunnel(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()

    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{served(connect=tunnel).server_address[1]}")
    with closing(made("https://embed..invalid/v1")) as embedder:
        for _ in range(10):
            with pytest.raises(EmbedderUnavailable, match="cannot be reached"):
                embedder.embed_query("a", 2.0)


@pytest.fixture
def silent() -> Iterator[Callable[[int], str]]:
    """Fills the listen queue of a port, so that connections are never accepted, and returns the address."""
    with ExitStack() as opened:

        def fill(port: int) -> str:
            listener = opened.enter_context(socket.socket())
            listener.bind(("127.0.0.2", port))
            listener.listen(0)
            for _ in range(4):
                client = opened.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(("127.0.0.2", port))
            return "127.0.0.2"

        yield fill


def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    served: Callable[..., Server], silent: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = served().server_address[1]
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in (silent(port), "127.0.0.1")]
    resolve = socket.getaddrinfo

    def resolved(host: str, *more: Any, **named: Any) -> Any:
        return addresses if host == "many.localhost" else resolve(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with closing(made(f"http://many.localhost:{port}/api/embed")) as embedder:
        assert len(embedder.embed_query("a", 2.0)) == 2


@pytest.mark.usefixtures("no_proxy")
def test_failed_tunnels_through_a_proxy_do_not_use_up_connections(
    monkeypatch: pytest.MonkeyPatch, served: Callable[..., Server]
) -> None:
    def tunnel(handler: BaseHTTPRequestHandler) -> None:
        # The proxy closes the tunnel during the TLS handshake.
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        tunnels.append(handler.path)

    tunnels: list[str] = []
    proxy = served(connect=tunnel)
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.server_address[1]}")
    with closing(made("https://embedder.invalid/v1")) as embedder:
        for _ in range(10):
            with pytest.raises(EmbedderUnavailable, match="cannot be reached"):
                embedder.embed_query("a", 2.0)
    assert len(tunnels) >= 10


@pytest.mark.usefixtures("no_proxy")
@pytest.mark.parametrize("tls", [False, True])
def test_a_tunnel_that_trickles_its_handshake_is_abandoned_at_the_time_limit(
    served: Callable[..., Server], tls: bool, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tunnel(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.rfile.read(1)
        handler.wfile.write(b"\x16\x03\x03\x20\x00")  # the head of a long TLS record
        _trickle(handler)

    proxy = served(connect=tunnel)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("HTTPS_PROXY", _with_tls(proxy, certificate) if tls else proxy.url)
    _is_unavailable_in_time(made("https://embedder.invalid/v1"), "did not answer within")


def test_the_address_of_a_request_is_not_logged(
    served: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(made(f"{served().url}?key=secret")) as embedder, caplog.at_level(logging.DEBUG):
        embedder.embed_query("my diary", 5)
    assert "secret" not in caplog.text
    assert "diary" not in caplog.text


def test_a_call_that_is_running_when_the_embedder_is_closed_ends_at_its_time_limit(
    served: Callable[..., Server],
) -> None:
    entered = threading.Event()

    def hang(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        entered.set()
        handler.server.over.wait(HOLD_S)  # type: ignore[attr-defined]

    embedder = made(served(hang).url)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(embedder.embed_query, "a", 1.0)
        assert entered.wait(HOLD_S)
        embedder.close()
        with pytest.raises(EmbedderUnavailable):
            call.result(HOLD_S)


def test_the_password_of_a_socks_proxy_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("httpcore.socks").debug("setup_socks5_connection.started auth=(b'us', b'hunter2')")
    assert "hunter2" not in caplog.text
