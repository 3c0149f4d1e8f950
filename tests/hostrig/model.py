"""A model on loopback: OpenAI chat completions, streamed or not, with scripted answers. Keeps every request."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

NAME = "scripted-model"
_FENCED = re.compile(r"<memory-context>\s*(.*?)\s*</memory-context>", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """A call of a tool that the model asks for."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """An error in place of an answer, by default one that hosts do not try again."""

    status: int = 400


Reply = str | Call | Sequence[Call] | Failure
Script = Callable[["Request"], Reply | None]


@dataclass(frozen=True)
class Request:
    """One request to the model, as received."""

    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @cached_property
    def system(self) -> str:
        """The system prompt."""
        return "\n".join(_text(message) for message in self.messages if message["role"] in ("system", "developer"))

    @cached_property
    def user(self) -> str:
        """The last message of the user, with what the host added to it."""
        return next((_text(message) for message in reversed(self.messages) if message["role"] == "user"), "")

    @cached_property
    def recalled(self) -> list[str]:
        """The content of each memory fence in the last message of the user."""
        return _FENCED.findall(self.user)

    @cached_property
    def results(self) -> list[str]:
        """The results of tools since the last message of the user, in order."""
        last = max((n for n, message in enumerate(self.messages) if message["role"] == "user"), default=-1)
        return [_text(message) for message in self.messages[last + 1 :] if message["role"] == "tool"]

    @cached_property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The schemas of the parameters of the tools on offer, by name; empty for the host's own requests."""
        given = [tool.get("function", tool) for tool in self.body.get("tools") or ()]
        return {tool["name"]: tool.get("parameters", {}) for tool in given}

    @cached_property
    def raw(self) -> str:
        """The whole request as one text, to search for what must not be in it."""
        return json.dumps([self.body, self.headers], ensure_ascii=False)


class ModelEndpoint:
    """Serves `/v1/chat/completions` and `/v1/models` on 127.0.0.1.

    `script` decides what is answered to an agent; where it returns None, and without one, a plain sentence is. Requests
    that offer no tools are the host's own (titles, summaries); `errand` is their answer. Safe for many clients.
    """

    def __init__(self) -> None:
        self.script: Script | None = None
        self.errand = "A short title"
        self.seen: list[Request] = []
        self._numbers = count(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        # Some tests end an agent in the middle of a request.
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def requests(self) -> list[Request]:
        """The requests of agents in order, without the host's own."""
        return [request for request in self.seen if request.tools]

    def says(self, *replies: Reply) -> None:
        """Answer the next requests of agents with these, in order, and plain sentences afterwards."""
        left, lock = list(replies), threading.Lock()

        def script(_: Request) -> Reply | None:
            with lock:
                return left.pop(0) if left else None

        self.script = script

    def reset(self) -> None:
        """Forget the script and the requests."""
        self.script, self.errand, self.seen = None, "A short title", []

    def _reply(self, request: Request) -> Reply:
        if not request.tools:
            return self.errand
        said = self.script(request) if self.script else None
        if said is None:
            told = request.user.split("<memory-context>")[0].strip()
            return (
                f"Answer {next(self._numbers)}: understood, you wrote {len(told)} characters and I have nothing to add."
            )
        return said

    def _handler(endpoint) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                found = self.path.rstrip("/").endswith("/models")
                model = {"id": NAME, "object": "model", "owned_by": "tests", "context_length": 200_000}
                self._send(200 if found else 404, {"object": "list", "data": [model]} if found else {"error": "none"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not self.path.endswith("/chat/completions"):
                    self._send(404, {"error": {"message": f"nothing at {self.path}"}})
                    return
                request = Request(body, dict(self.headers))
                endpoint.seen.append(request)
                reply = endpoint._reply(request)
                if isinstance(reply, Failure):
                    self._send(reply.status, {"error": {"message": "the model is not there", "type": "not_there"}})
                elif request.streamed:
                    self._stream(reply)
                else:
                    self._send(200, _completion(reply))

            def _send(self, status: int, document: dict[str, Any]) -> None:
                payload = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def _stream(self, reply: Reply) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                for chunk in _chunks(reply):
                    self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")
                self.close_connection = True

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


_USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
_call_numbers = count(1)


def _message(reply: Reply) -> tuple[dict[str, Any], str]:
    if isinstance(reply, str):
        return {"role": "assistant", "content": reply}, "stop"
    calls = [
        {
            "index": n,
            "id": f"call_{next(_call_numbers)}",
            "type": "function",
            "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
        }
        for n, call in enumerate([reply] if isinstance(reply, Call) else reply)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"


def _completion(reply: Reply) -> dict[str, Any]:
    message, reason = _message(reply)
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {**_envelope("chat.completion"), "choices": [choice], "usage": _USAGE}


def _chunks(reply: Reply) -> Iterator[dict[str, Any]]:
    message, reason = _message(reply)
    envelope = _envelope("chat.completion.chunk")

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": ""})
    if "tool_calls" in message:
        yield chunk({"tool_calls": message["tool_calls"]})
    else:
        text = message["content"]
        for start in range(0, len(text), 16):
            yield chunk({"content": text[start : start + 16]})
    yield chunk({}, reason)
    yield {**envelope, "choices": [], "usage": _USAGE}


def _envelope(kind: str) -> dict[str, Any]:
    return {"id": f"answer-{next(_call_numbers)}", "object": kind, "created": 1_700_000_000, "model": NAME}


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
