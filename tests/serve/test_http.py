"""The server over HTTP: who is admitted, and that nothing in a request reaches another theme."""

from __future__ import annotations

import json
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from mcprig.client import Client, sdk
from mcprig.memory import Memory

from hermes_memory_pgvector.serve import listener
from hermes_memory_pgvector.serve.http import BODY_BYTES_MAX
from hermes_memory_pgvector.serve.listener import HEADER_S_MAX, TAKE_S_MAX

SECRET = "the safe opens with 7731"
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
OPENING = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}  # fmt: skip


def asking(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def post(url: str, token: str = "", message: Any = None, **headers: str) -> httpx.Response:
    given = {"Authorization": f"Bearer {token}"} if token else {}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = message if isinstance(message, bytes) else json.dumps(message or OPENING).encode()
    return httpx.post(url, headers={**JSON, **given, **named}, content=body, timeout=30)


MAJORS = [pytest.param(1, marks=pytest.mark.slow), 2]


@pytest.fixture(params=MAJORS)
def url(memory: Memory, request: pytest.FixtureRequest) -> str:
    """The address of a server, with each version of the SDK."""
    return memory.served(sdk(request.param))


def test_only_a_request_with_a_token_from_this_machine_is_answered(memory: Memory, url: str) -> None:
    token = memory.token("garden")
    assert post(url, token).status_code == 200
    for answer, status in [
        (post(url), 401),
        (post(url, f"{token}x"), 401),
        (post(url, Authorization=f"Basic {token}"), 401),
        (post(url, Authorization=token), 401),
        (post(url, token, Origin="http://evil.example"), 403),
        (post(url, token, Origin="null"), 403),
        (post(url, token, Origin="http://localhost.evil.example:80"), 403),
        (post(url, token, Host="evil.example"), 421),
        (post(url, token, Host="127.0.0.1.evil.example:8765"), 421),
        (post(f"{url}/other", token), 404),
        (httpx.get(url, headers={**JSON, "Authorization": f"Bearer {token}"}), 405),
        (httpx.delete(url, headers={"Authorization": f"Bearer {token}"}), 405),
        (post(url, token, b"x" * (BODY_BYTES_MAX + 1)), 413),
        (post(url, token, b"no json"), 400),
        (post(url, token, b'{"a": "\\ud800"}'), 400),
        (post(url, token, b"[" * 100_000), 400),
    ]:
        assert (answer.status_code, token in answer.text) == (status, False), answer.text
    assert post(url).headers["www-authenticate"] == "Bearer"
    for named in ({"Origin": "http://localhost:3000"}, {"Origin": "http://localhost"}, {"Host": "localhost"}):
        assert post(url, token, **named).status_code == 200


def test_a_request_may_be_as_long_as_the_manual_says(memory: Memory, url: str) -> None:
    assert post(url, memory.token("garden"), json.dumps(OPENING).encode().ljust(BODY_BYTES_MAX)).status_code == 200


@pytest.mark.parametrize("number", [2.0, None, True, [2]])
def test_a_write_with_an_id_that_cannot_be_answered_is_refused(memory: Memory, url: str, number: Any) -> None:
    answer = post(url, memory.token("garden"), {**asking("remember", content="the kelp is green"), "id": number})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
    assert memory.rows() == []


def test_a_server_on_another_loopback_address_answers_requests_to_it(memory: Memory) -> None:
    url = memory.served(None, "--host", "127.0.0.2")
    assert post(url, memory.token("garden")).status_code == 200


def test_a_revoked_token_and_an_expired_one_open_nothing_from_then_on(memory: Memory, url: str) -> None:
    token = memory.token("garden", name="laptop")
    assert post(url, token).status_code == 200
    assert memory.run("mcp", "token", "revoke", "laptop").returncode == 0
    assert post(url, token).status_code == 401


def test_who_has_no_token_is_not_told_where_they_are_kept(memory: Memory, url: str) -> None:
    memory.token("garden")
    (memory.home / "pgvector" / "mcp_tokens.json").chmod(0o644)
    answer = post(url, "none")
    assert (answer.status_code, str(memory.home) in answer.text) == (503, False)


def test_the_header_selects_among_the_themes_of_the_token(memory: Memory, url: str) -> None:
    token = memory.token("garden", "house")
    for header, theme in [({}, "garden"), ({"X_Hermes_Session_Key": "House"}, "house")]:
        found = post(url, token, asking("remember", content=f"said in {theme}", sync=True), **header)
        assert found.json()["result"]["structuredContent"]["theme"] == theme
    for wrong in ("cellar", "agent:main:telegram:dm:1", "dm-telegram-0123456789abcdef", "*", "all", "garden,house"):
        refused = post(url, token, asking("list_memories"), X_Hermes_Session_Key=wrong)
        assert (refused.status_code, "is not one of this token" in refused.text) == (403, True)
    found = post(url, token, asking("recall_memory", query="said", scope="all")).json()["result"]["structuredContent"]
    assert {hit["theme"] for hit in found["hits"]} == {"garden", "house"}


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    *(("recall_memory", {"query": "safe 7731", "scope": scope}) for scope in (
        "cellar", "Cellar", "ｃｅｌｌａｒ", "cel\u200blar", " cellar ", "vault", "all", "*", "current", "session", "",
        "%", "garden,cellar", '["cellar"]', "dm-telegram-0123456789abcdef", "' or true --", "cellar\0",
    )),
    *(("recall_conversation", {"query": "safe 7731", "scope": scope, "context": 3}) for scope in ("cellar", "all")),
    *((tool, {"query": "safe 7731", name: "cellar"}) for tool in ("recall_memory", "recall_conversation")
      for name in ("theme", "agent_identity", "session_id", "granted", "session_key")),
    ("recall_memory", {"query": "safe 7731", "scope": ["cellar"]}),
    ("recall_memory", {"query": "safe 7731", "scope": {"theme": "cellar"}}),
    ("list_memories", {}), ("list_memories", {"theme": "cellar"}), ("list_memories", {"scope": "all"}),
    ("list_memories", {"before": 10**12}),
    ("remember", {"content": "x", "theme": "cellar"}), ("remember", {"content": "x", "metadata": {"origin": "cellar"}}),
    ("remember", {"content": "x", "supersedes": 1}),
    ("update", {"id": 1, "content": "x"}), ("update", {"id": "1", "content": "x", "theme": "cellar"}),
    ("forget", {"id": 1}), ("forget", {"id": 1, "theme": "cellar"}),
    ("memory_status", {}), ("memory_status", {"session_id": "cellar"}), ("memory_status", {"theme": "cellar"}),
    *(("memory_search", {"query": "safe 7731", "scope": scope}) for scope in ("", "cellar", "all", "vault", "%")),
    ("memory_search", {"query": "safe 7731", "limit": 20, "session_id": "cellar"}),
    ("memory_reflect", {"topic": "safe 7731"}), ("memory_reflect", {"topic": "safe", "scope": "cellar"}),
    *(("memory_export", {"scope": scope, "status": "all"}) for scope in ("", "cellar", "vault", "%")),
    ("memory_write", {"content": "V[safe]: open", "scope": "vault"}), ("memory_write", {"content": "~[safe]: no"}),
    ("memory_write", {"content": "✓[vault]: done", "scope": "vault", "theme": "cellar"}),
    ("memory_tick", {"turn": 99, "message": "it works, merged", "session_id": "cellar"}),
    ("memory_purge", {"scope": "vault", "older_than_days": 0}), ("memory_purge", {"older_than_days": 0}),
    ("memory_optimize", {}), ("memory_optimize", {"dry_run": False, "threshold_pct": 1}),
]  # fmt: skip


@pytest.mark.parametrize("major", MAJORS)
def test_nothing_in_a_call_leaves_the_themes_of_the_token(memory: Memory, major: int) -> None:
    wide = {
        "cross_theme_recall": "all", "also_recall": {"*": ["cellar"]}, "also_write": {"*": ["cellar"]},
        "theme_aliases": {"vault": "cellar"}, "scope_default": "all",
    }  # fmt: skip
    (memory.home / "pgvector" / "config.json").write_text(json.dumps({**memory.settings, **wide}))
    served = memory.served(sdk(major))
    cellar = memory.http(served, memory.token("cellar"), era="handshake")
    assert cellar.call("remember", content=SECRET, sync=True)["id"] == 1
    cellar.call("memory_write", content=f"V[safe]: {SECRET}", scope="vault")
    block = cellar.call("memory_status")["block"]
    assert SECRET in block
    (memory.home / "memories").mkdir()
    (memory.home / "memories" / "MEMORY.md").write_text(SECRET)
    garden = memory.http(served, memory.token("garden", "house"), era="handshake")
    for tool, arguments in HOSTILE:
        result = garden.request("call_tool", tool, arguments)
        assert "safe opens" not in json.dumps(result), (tool, arguments)
        assert "cellar" not in json.dumps(result.get("structuredContent", {}).get("theme", "")), (tool, arguments)
    assert memory.rows("content, agent_identity")[0] == (SECRET, "cellar")
    assert {theme for content, theme in memory.rows("content, agent_identity") if content != SECRET} <= {"garden"}
    for uri in ("memory://facts/hot", "memory://entry/1", "memory://facts/hot?theme=cellar"):
        assert "safe opens" not in json.dumps(garden.request("read_resource", uri))
    assert "safe opens" not in json.dumps(garden.request("get_prompt", "facts"))
    assert cellar.call("list_memories")["counts"]["memory"] == 1
    assert cellar.call("memory_status")["block"] == block
    assert (memory.home / "memories" / "MEMORY.md").read_text() == SECRET


def test_a_session_belongs_to_its_token(memory: Memory, url: str) -> None:
    garden, cellar = memory.token("garden"), memory.token("cellar")
    session = post(url, garden).headers["mcp-session-id"]
    assert post(url, garden, asking("list_memories"), Mcp_Session_Id=session).status_code == 200
    for token, name in [(cellar, session), (garden, f"{session[:-1]}-"), (garden, "x"), (garden, session[:32])]:
        assert post(url, token, asking("list_memories"), Mcp_Session_Id=name).status_code == 404
    # An id outlives the server that gave it.
    assert memory.end_server(signal.SIGTERM) == 0
    again = memory.served()
    assert post(again, garden, asking("list_memories"), Mcp_Session_Id=session).status_code == 200


def test_entries_name_the_session_of_their_client(memory: Memory) -> None:
    url, token = memory.served(), memory.token("garden")
    clients: list[Client] = [memory.http(url, token, sdk(1), "handshake") for _ in range(2)]
    clients += [memory.stdio("garden"), memory.stdio("garden")]
    for number, client in enumerate(clients):
        client.call("remember", content=f"note {number}", sync=True)
        client.call("remember", content=f"further note {number}", sync=True)
    sessions = [name for (name,) in memory.rows("metadata ->> 'session_id'")]
    assert sessions[0::2] == sessions[1::2]
    assert len(set(sessions)) == 4
    assert all(name.startswith("mcp-") for name in sessions)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_after_it_has_stored_what_is_pending(
    memory: Memory, url: str, sent: signal.Signals
) -> None:
    token = memory.token("garden")
    for number in range(8):
        post(url, token, asking("remember", content=f"note {number}"))
    assert memory.end_server(sent) == 0
    assert len(memory.rows()) == 8


def test_a_server_that_nohup_started_outlives_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in listener.endings()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    "sent", [[], ["GET / HTTP/1.1\r\n"], ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\n"]]
)
def test_a_connection_that_sends_no_whole_header_is_closed(memory: Memory, sent: list[str]) -> None:
    address = ("127.0.0.1", httpx.URL(memory.served()).port)
    start = time.monotonic()
    with socket.create_connection(address, timeout=6 * HEADER_S_MAX) as client:
        for part in sent:
            client.sendall(part.encode())
            if part.endswith("\r\n\r\n"):
                assert b" 404 " in client.recv(1000)
        while client.recv(1000):
            pass
    assert len(sent) > 1 or time.monotonic() - start < 2 * HEADER_S_MAX


@pytest.mark.slow
def test_an_answer_that_was_written_whole_waits_for_its_client() -> None:
    size = 1 << 24  # more than what the buffers of both ends take

    async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": bytes(size)})

    opened, server = listener.listening("127.0.0.1", 0), listener.server_of(answer)
    serving = threading.Thread(target=server.run, args=([opened],))
    serving.start()
    try:
        with socket.create_connection(opened.getsockname(), timeout=60) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            time.sleep(4 * HEADER_S_MAX)
            taken = 0
            while part := client.recv(1 << 20):
                taken += len(part)
        assert taken > size
    finally:
        server.should_exit = True
        serving.join()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_connection_that_takes_no_answers_is_closed(memory: Memory) -> None:
    with socket.socket() as client:
        # The answers are more than what the buffers of both ends take.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", httpx.URL(memory.served()).port))
        client.settimeout(1)
        with suppress(TimeoutError):
            for _ in range(60):
                client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 500)
        closed = select.poll()
        closed.register(client, 0)
        assert closed.poll(3000 * TAKE_S_MAX)


@pytest.mark.slow
def test_answers_that_are_taken_slowly_arrive(memory: Memory) -> None:
    url, token, count = memory.served(), memory.token("garden"), 800
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    given = {"Host": "localhost", "Authorization": f"Bearer {token}", **JSON, "Content-Length": len(body)}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    answers = bytearray()
    with socket.create_connection(("127.0.0.1", httpx.URL(url).port), timeout=60) as client:
        client.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n{body}".encode() * count)
        while part := client.recv(1 << 16):
            answers += part
            time.sleep(0.2)
    assert answers.count(b"HTTP/1.1 200 ") == answers.count(b'"recall_memory"') == count


def test_a_request_that_takes_longer_than_a_header_may_is_answered(memory: Memory) -> None:
    url, token = memory.served(), memory.token("garden")

    def slow() -> Iterator[bytes]:
        body = json.dumps(OPENING).encode()
        yield body[:20]
        time.sleep(2.5 * HEADER_S_MAX)
        yield body[20:]

    headers = {**JSON, "Authorization": f"Bearer {token}"}
    assert httpx.post(url, headers=headers, content=slow(), timeout=30).status_code == 200


def test_a_signal_during_an_incomplete_request_ends_the_server_without_a_traceback(memory: Memory, url: str) -> None:
    token = memory.token("garden")
    with socket.create_connection(("127.0.0.1", httpx.URL(url).port)) as client:
        client.sendall(
            f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            "Content-Length: 1000\r\n\r\nabc".encode()
        )
        assert post(url, token).status_code == 200  # by then the other request is read
        assert memory.end_server(signal.SIGTERM) == 0
        assert b" 503 " in client.recv(100)
    assert "Traceback" not in memory.warnings()


def test_a_taken_port_is_named(memory: Memory) -> None:
    port = httpx.URL(memory.served()).port
    refused = memory.run("mcp", "--http", "--port", str(port))
    assert (refused.returncode, f"port {port} of 127.0.0.1 cannot be used" in refused.stderr) == (1, True)
