"""The server on stdin and stdout as a process: what it writes there, how it starts, and how it ends."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commandline import hermes_pgvector
from loopback import Endpoint
from mcprig.client import sdk, wait_until_gone
from mcprig.memory import Memory
from waiting import wait_for

OPENING = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Raw:
    """A server that is written to line by line."""

    def __init__(self, memory: Memory, *options: str, major: int = 2, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sdk(major).program, "mcp", *options], env={**memory.environment, **environment}, cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._count = 0
        self.request("initialize", **OPENING)
        self.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def send(self, line: str, end: str = "\n") -> None:
        self.process.stdin.write(f"{line}{end}".encode())  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]

    def begin(self, method: str, end: str = "\n", **parameters: Any) -> int:
        self._count += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self._count, "method": method, "params": parameters}), end)
        return self._count

    def answers(self) -> Iterator[dict[str, Any]]:
        for line in self.process.stdout or ():
            message = json.loads(line)
            if "id" in message:
                yield message

    def request(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = self.begin(method, **parameters)
        return next(message for message in self.answers() if message["id"] == number)

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.request("tools/call", name=tool, arguments=arguments)["result"]
        return result

    def end(self) -> tuple[int, bytes, bytes]:
        """Close stdin; returns exit code, the rest of stdout, and stderr."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), 2])
def major(request: pytest.FixtureRequest) -> int:
    """The version of the SDK. By default the first one runs in test_clients.py only."""
    number: int = request.param
    return number


@pytest.fixture
def away(tmp_path: Path) -> Memory:
    """A home whose Postgres and embedder do not answer."""
    return Memory(
        tmp_path / "away", dsn="postgresql://127.0.0.1:9/none", embed_url="http://127.0.0.1:9", recall_budget_s=0.5
    )


def test_stdout_holds_the_protocol_alone_whatever_comes_in(away: Memory, major: int) -> None:
    raw = Raw(away, "--theme", "garden", major=major, HERMES_PGVECTOR_DEBUG="1")
    for line in ("", "no json", "[]", "{}", '{"jsonrpc": "2.0", "id": 7}', '"', "{" * 1000, "\0", "x" * 9_000_000):
        raw.send(line)
    raw.send(
        '{"jsonrpc": "2.0", "id": "lone", "method": "tools/call", '
        '"params": {"name": "remember", "arguments": {"content": "before \\ud800 after"}}}'
    )
    answer = next(message for message in raw.answers() if message["id"] == "lone")
    assert answer["result"]["structuredContent"]["status"] == "accepted"
    code, out, err = raw.end()
    assert code == 0
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
    assert b"Traceback" not in err


@pytest.mark.parametrize("debug", ["", "1"])
def test_nothing_that_a_client_sends_is_logged(away: Memory, debug: str) -> None:
    # Version 1 of the SDK describes what it cannot validate.
    raw = Raw(away, "--theme", "garden", major=1, HERMES_PGVECTOR_DEBUG=debug)
    secret = "the safe opens with 7731"
    for message in (
        {"id": 7, "method": "tools/call", "params": {"name": "remember", "arguments": json.dumps({"content": secret})}},
        {"id": 8, "method": "tools/call", "params": {"name": "remember", "arguments": [secret]}},
        {"method": "notifications/progress", "params": {"content": secret}},
        {"id": secret, "result": {"content": secret}},
    ):
        raw.send(json.dumps({"jsonrpc": "2.0", **message}))
    assert raw.request("ping")["result"] == {}
    code, _, err = raw.end()
    assert (code, b"7731" in err) == (0, False)


UNREADABLE = [
    ('{"id": 5, "a": ' * 250 + "1" + ', "id": 6}' * 250, -32700),
    ('{"id": 5, "a": ' * 5000 + "1" + ', "id": 6}' * 5000, -32700),
    (f'{{"id": 5, "a": "{"é" * 5_000_000}", "id": 6}}', -32600),
]


def test_a_request_that_cannot_be_read_is_answered_with_its_id(away: Memory) -> None:
    raw = Raw(away, "--theme", "garden")
    for message, number in (
        ('{"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": %s}', 77),
        ('{"method": "tools/call", "params": %s, "jsonrpc": "2.0", "id": "a \\" b"}', 'a " b'),
        ('{"params": %s}', None),
    ):
        for parameters, code in UNREADABLE:
            raw.send(message % parameters)
            answer = next(raw.answers())
            assert (answer["id"], answer["error"]["code"]) == (number, code), message
            assert raw.request("ping")["result"] is not None
    assert raw.end()[0] == 0


REQUEST = {"jsonrpc": "2.0", "id": 77, "method": "ping", "params": {}}
NO_REQUESTS = [
    ([REQUEST, REQUEST], None),
    ({**REQUEST, "params": []}, 77),
    ({**REQUEST, "jsonrpc": "1.0"}, 77),
    ({**REQUEST, "method": 5}, 77),
    ({"jsonrpc": "2.0", "id": 77}, 77),
    ({**REQUEST, "id": 7.0}, None),
    ({**REQUEST, "id": None}, None),
    ("ping", None),
]


def test_json_that_is_no_request_is_answered(away: Memory, major: int) -> None:
    raw = Raw(away, "--theme", "garden", major=major)
    for message, number in NO_REQUESTS:
        raw.send(json.dumps(message))
        raw.begin("ping")
        answer = next(raw.answers())
        assert (answer["id"], answer["error"]["code"]) == (number, -32600), message
        # An error of the client is not answered: two programs could go on for ever.
        raw.send(json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no request"}}))
        assert raw.request("ping")["result"] == {}
    assert raw.end()[0] == 0


def test_it_serves_while_postgres_and_embedder_are_away_and_says_so(away: Memory, major: int) -> None:
    raw = Raw(away, "--theme", "garden", major=major)
    assert raw.request("tools/list")["result"]["tools"]
    assert raw.call("remember", content="the kelp is green")["structuredContent"]["status"] == "accepted"
    found = raw.call("recall_memory", query="kelp")["structuredContent"]
    assert found["hits"] == []
    assert any("Postgres" in reason for reason in found["degraded"])
    listed = raw.call("list_memories")
    assert (listed["isError"], "Postgres" in listed["content"][0]["text"]) == (True, True)
    assert raw.end()[0] == 0


def test_a_recall_without_the_embedder_finds_words_and_says_so(memory: Memory, endpoint: Endpoint) -> None:
    endpoint.status = 503
    raw = Raw(memory, "--theme", "garden")
    raw.call("remember", content="the kelp is green", sync=True)
    found = raw.call("recall_memory", query="kelp")["structuredContent"]
    assert ([hit["content"] for hit in found["hits"]], len(found["degraded"])) == (["the kelp is green"], 1)
    assert raw.end()[0] == 0


def test_too_many_open_calls_are_refused_and_the_others_answered(away: Memory) -> None:
    raw = Raw(away, "--theme", "garden")
    numbers = {raw.begin("tools/call", name="recall_memory", arguments={"query": f"kelp {n}"}) for n in range(120)}
    failed = []
    for message in raw.answers():
        numbers.discard(message["id"])
        failed.append(message["result"]["isError"])
        if not numbers:
            break
    assert 0 < sum(failed) < 120 - 8
    assert raw.end()[0] == 0


def test_what_was_accepted_is_stored_once_though_the_server_is_killed(memory: Memory, major: int) -> None:
    accepted: set[str] = set()
    for round_ in range(3):
        raw = Raw(memory, "--theme", "garden", major=major)
        begun = {}
        for number in range(20):
            name = f"note {round_}.{number}"
            tool, content = ("remember", name) if number % 2 else ("memory_write", f"V[{name}]: kept")
            begun[raw.begin("tools/call", name=tool, arguments={"content": content})] = name
        for _, message in zip(range(7 + round_), raw.answers(), strict=False):
            assert message["result"]["isError"] is False
            accepted.add(begun[message["id"]])
        raw.process.kill()
        raw.process.wait(10)
    last = Raw(memory, "--theme", "garden", major=major)

    def stored() -> list[str]:
        facts = memory.select("select target from facts where status in ('active', 'cold')")
        return [name for (name,) in (*memory.rows(), *facts)]

    wait_for(lambda: accepted <= set(stored()))
    assert len(stored()) == len(set(stored()))
    assert last.end()[0] == 0


def test_requests_that_came_before_the_end_of_stdin_are_answered(memory: Memory, major: int) -> None:
    raw = Raw(memory, "--theme", "garden", major=major)
    texts = [f"note {number}" for number in range(12)]
    for text in texts:
        # The last line has no end.
        raw.begin("tools/call", "" if text == texts[-1] else "\n", name="remember", arguments={"content": text})
    code, out, _ = raw.end()
    answers = [json.loads(line).get("result", {}).get("structuredContent", {}) for line in out.splitlines()]
    assert (code, [answer.get("status") for answer in answers]) == (0, ["accepted"] * len(texts))
    assert sorted(memory.rows()) == sorted((text,) for text in texts)


def test_a_call_that_is_cancelled_is_not_waited_for_at_the_end_of_stdin(memory: Memory, endpoint: Endpoint) -> None:
    raw = Raw(memory, "--theme", "garden")
    raw.call("remember", content="the kelp is green", sync=True)
    with endpoint.hanging():
        number = raw.begin("tools/call", name="recall_memory", arguments={"query": "kelp"})
        raw.send(json.dumps({"method": "notifications/cancelled", "params": {"requestId": number}, "jsonrpc": "2.0"}))
        raw.process.stdin.close()  # type: ignore[union-attr]
        assert raw.process.wait(memory.settings["recall_budget_s"] / 2) == 0


@pytest.mark.parametrize("way", ["closes stdout", "closes both"])
def test_a_client_that_does_not_wait_for_its_answers_ends_it(away: Memory, major: int, way: str) -> None:
    raw = Raw(away, "--theme", "garden", major=major)
    raw.begin("tools/call", name="recall_memory", arguments={"query": "kelp"})
    raw.process.stdout.close()  # type: ignore[union-attr]
    if way == "closes both":
        raw.process.stdin.close()  # type: ignore[union-attr]
    assert raw.process.wait(20) == 0
    assert raw.process.stderr.read() == b""  # type: ignore[union-attr]


def test_a_client_on_a_socket_may_end_with_answers_unread(away: Memory) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sdk(2).program, "mcp", "--theme", "garden"], env=away.environment, cwd="/", stdin=theirs, stdout=theirs,
            stderr=subprocess.PIPE,
        )  # fmt: skip
    with ours:
        ours.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": OPENING}).encode() + b"\n")
        select.select([ours], [], [], 30)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize("way", ["closes stdin", "is killed"])
def test_nothing_is_left_running_when_the_client_goes_away(memory: Memory, way: str) -> None:
    session = memory.stdio("garden")
    session.call("remember", content="the kelp is green", sync=True)
    (server,) = session.servers
    session.begin("call_tool", "recall_memory", {"query": "kelp"})
    if way == "is killed":
        session.kill()
    else:
        session.result()
        assert session.close() == 0
    wait_until_gone(server)


@pytest.mark.parametrize("way", ["sends a signal", "closes stdin"])
def test_a_client_that_reads_nothing_does_not_keep_it_alive(away: Memory, major: int, way: str) -> None:
    raw = Raw(away, "--theme", "garden", major=major)
    for _ in range(60):
        raw.begin("tools/list")
    if way == "closes stdin":
        raw.process.stdin.close()  # type: ignore[union-attr]
    else:
        raw.process.send_signal(signal.SIGTERM)
    assert raw.process.wait(20) == 0


def test_requests_that_are_cancelled_while_their_answers_wait_do_not_end_it(away: Memory) -> None:
    raw = Raw(away, "--theme", "garden", major=1)
    numbers = [raw.begin("tools/list") for _ in range(40)]
    for number in numbers:
        raw.send(json.dumps({"method": "notifications/cancelled", "params": {"requestId": number}, "jsonrpc": "2.0"}))
    assert raw.request("ping")["result"] == {}
    assert raw.end()[0] == 0


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_after_it_has_stored_what_is_pending(memory: Memory, major: int, sent: signal.Signals) -> None:
    raw = Raw(memory, "--theme", "garden", major=major)
    raw.call("recall_memory", query="kelp")
    numbers = [raw.begin("tools/call", name="remember", arguments={"content": f"note {n}"}) for n in range(8)]
    for _, message in zip(numbers, raw.answers(), strict=False):
        assert message["result"]["isError"] is False
    raw.process.send_signal(sent)
    assert raw.process.wait(20) == 0
    assert len(memory.rows()) == 8


def test_the_theme_comes_from_the_option_the_environment_or_the_home(memory: Memory) -> None:
    variable = {"HERMES_PGVECTOR_MCP_THEME": "Cellar"}
    for options, environment, theme in [
        (["--theme", "garden"], variable, "garden"),
        ([], variable, "cellar"),
        # A home in a folder of its own is the profile `default` of its host.
        ([], {}, "default"),
    ]:
        raw = Raw(memory, *options, **environment)
        assert raw.call("remember", content=f"said in {theme}", sync=True)["structuredContent"]["theme"] == theme
        assert raw.end()[0] == 0
    assert memory.rows("agent_identity") == [("garden",), ("cellar",), ("default",)]


def test_the_home_may_hold_writes_back_until_a_person_approves(memory: Memory) -> None:
    (memory.home / "config.yaml").write_text("memory:\n  write_approval: true\n")
    session = memory.stdio("garden")
    answer = session.call("remember", content="the kelp is green", sync=True)
    assert (answer["status"], memory.rows()) == ("waits for approval", [])
    assert memory.run("pending", "approve", "--all", "--yes").returncode == 0
    assert session.call("recall_memory", query="kelp")["count"] == 1


def test_rules_of_the_operator_hold_for_a_client_as_for_a_terminal(memory: Memory) -> None:
    rules = [{"action": "none", "pattern": "secret"}]
    (memory.home / "pgvector" / "config.json").write_text(json.dumps({**memory.settings, "keep": rules}))
    session = memory.stdio("garden")
    assert "nothing is stored" in session.refused("remember", content="the secret is kelp")
    assert session.call("remember", content="the kelp is green", sync=True)["status"] == "stored"


def test_without_the_sdk_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    refused = hermes_pgvector("mcp", "--home", str(tmp_path))
    assert refused.code == 1
    assert "the MCP SDK is missing; run: pip install" in refused.err
    assert "[mcp]" in refused.err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--theme", "dm-telegram-0123456789abcdef"], "belongs to one person or room"),
        (["--theme", "garden-*"], "is a pattern; name each theme"),
        (["--http", "--theme", "garden"], "the token of a client says its themes"),
        (["--http", "--host", "0.0.0.0"], "others can reach without encryption"),
        (["--http", "--host", "db.example"], "give localhost or an address"),
        (["--http", "--port", "70000"], "70000 must be from 0 to 65535"),
    ],
)
def test_what_may_not_be_served_is_refused(away: Memory, options: list[str], reason: str) -> None:
    refused = away.run("mcp", *options)
    assert (refused.returncode, reason in refused.stderr) == (2, True)
