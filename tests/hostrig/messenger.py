"""A Signal network on loopback: what `signal-cli daemon --http` offers, as far as the hosts' own adapters use it."""

from __future__ import annotations

import contextlib
import json
import queue
import select
import socket
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

ACCOUNT = "+15550001111"
ANSWER_S_MAX = 60
LOOK_S = 0.2


@dataclass(frozen=True)
class Person:
    """A user of Signal: phone number, id and profile name."""

    number: str
    uuid: str
    name: str


class Messenger:
    """Write as a person, in private or in a group; wait for what the agent sends back. Safe for many threads."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self._connected = threading.Event()
        self._news: queue.Queue[bytes | None] = queue.Queue()
        self._times = count(int(time.time() * 1000))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """What lets a gateway take part, open to everybody.

        Busy input is steered: a host that is told to interrupt awaits other things before it queues what comes while
        it still tidies up behind an answer, and leaves it lying if it has finished by then.
        """
        return {
            "SIGNAL_HTTP_URL": self.url, "SIGNAL_ACCOUNT": ACCOUNT, "SIGNAL_ALLOWED_USERS": "*",
            "SIGNAL_GROUP_ALLOWED_USERS": "*", "SIGNAL_REACTIONS": "false", "GATEWAY_ALLOW_ALL_USERS": "true",
            "HERMES_GATEWAY_BUSY_INPUT_MODE": "steer",
        }  # fmt: skip

    def close(self) -> None:
        self._news.put(None)
        self._server.shutdown()
        self._server.server_close()

    def write(self, person: Person, text: str, *, group: str = "", until: str, **more: Any) -> None:
        """Write, and wait until the agent has sent a message there that holds `until`."""
        seen = len(self.sent)
        self.send(person, text, group=group, **more)
        self.wait(until, since=seen)

    def send(self, person: Person, text: str, *, group: str = "", **more: Any) -> None:
        """Write without waiting for an answer. `more` are other fields of the message, such as a `quote`."""
        assert self._connected.wait(ANSWER_S_MAX), "the gateway does not listen"
        stamp = next(self._times)
        message: dict[str, Any] = {"timestamp": stamp, "message": text, **more}
        if group:
            message["groupInfo"] = {"groupId": group, "groupName": "Neighbours", "type": "DELIVER"}
        envelope = {
            "source": person.number, "sourceNumber": person.number, "sourceUuid": person.uuid,
            "sourceName": person.name, "timestamp": stamp, "dataMessage": message,
        }  # fmt: skip
        self._news.put(f"data: {json.dumps({'envelope': envelope, 'account': ACCOUNT})}\n\n".encode())

    def wait(self, until: str, *, since: int = 0) -> None:
        """Wait until the agent has sent a message that holds `until`, after the first `since` that it sent."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while not any(until in sent["message"] for sent in self.sent[since:]):
            if time.monotonic() > deadline:
                raise AssertionError(f"no message with {until!r} came, but {self.sent[since:]}")
            time.sleep(0.05)

    def _handler(messenger) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith("/api/v1/events"):
                    self._events()
                else:
                    self._send({"versions": "0.13"})

            def do_POST(self) -> None:
                call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if call["method"] == "send":
                    messenger.sent.append(call["params"])
                result: Any = [] if call["method"].startswith("list") else {"timestamp": next(messenger._times)}
                self._send({"jsonrpc": "2.0", "id": call.get("id"), "result": result})

            def _events(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                self.wfile.write(b": hello\n\n")
                self.wfile.flush()
                messenger._connected.set()
                while True:
                    with contextlib.suppress(queue.Empty):
                        event = messenger._news.get(timeout=LOOK_S)
                        if event is None:
                            return
                        if self._left():
                            # For the next gateway.
                            messenger._news.put(event)
                            return
                        self.wfile.write(event)
                        self.wfile.flush()
                    if self._left():
                        return

            def _left(self) -> bool:
                """Whether the gateway has closed the connection."""
                readable, _, _ = select.select([self.connection], [], [], 0)
                return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

            def _send(self, document: Any) -> None:
                payload = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler
