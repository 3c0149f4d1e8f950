"""The official MCP SDK, whose versions 1 and 2 register handlers in different ways.

Everything else of the server passes results in the form of the protocol, as JSON values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import anyio.lowlevel

Values: TypeAlias = Mapping[str, Any]
# (parameters of the request, ASGI scope of its HTTP request; empty without one) -> result
Handler: TypeAlias = Callable[[Values, Values], Awaitable[dict[str, Any]]]

NOT_JSON, INVALID = -32700, -32600
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ID = r'"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")\s*(?=[,}])'
_OTHER = r'"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*'
# The id of a message, before or behind its parameters: those may have an id of their own.
_MESSAGE_ID = re.compile(rf"^\s*\{{\s*(?:{_OTHER},\s*)*{_ID}|,\s*{_ID}(?:,\s*{_OTHER})*\}}\s*$")
# The names of the request and result classes, without `Request` and `Result`.
_CLASSES = {
    "tools/list": "ListTools", "tools/call": "CallTool",
    "resources/list": "ListResources", "resources/templates/list": "ListResourceTemplates",
    "resources/read": "ReadResource",
    "prompts/list": "ListPrompts", "prompts/get": "GetPrompt",
}  # fmt: skip


def server(name: str, version: str, instructions: str, handlers: Mapping[str, Handler]) -> Any:
    """A low-level server of the SDK with these handlers, by method."""
    from mcp.server.lowlevel import Server

    made = Server(name, version=version, instructions=instructions)
    register = _register_2 if hasattr(made, "add_request_handler") else _register_1
    for method, handler in handlers.items():
        register(made, method, handler)
    return made


def error(code: int, message: str) -> Exception:
    """The exception that the SDK answers as an error of the protocol."""
    from mcp.shared import exceptions

    if hasattr(exceptions, "MCPError"):
        made: Exception = exceptions.MCPError(code=code, message=message)
    else:
        from mcp.types import ErrorData

        made = exceptions.McpError(ErrorData(code=code, message=message))
    return made


def parsed(message: str) -> Any:
    """The JSON value of a message, as the SDK reads it. Raises ValueError."""
    from pydantic import TypeAdapter

    return TypeAdapter(Any).validate_json(message)


def flaw(message: str) -> tuple[int, str] | None:
    """The error of a message that the SDK drops without an answer, as a code and a reason; None for any other."""
    from mcp.types import JSONRPCMessage
    from pydantic import TypeAdapter

    try:
        value = parsed(message)
    except ValueError:
        return NOT_JSON, "the request is not JSON, or too deep"
    if isinstance(value, dict) and value.keys() & {"result", "error"}:
        return None  # answers are not answered
    with suppress(ValueError):
        TypeAdapter(JSONRPCMessage).validate_python(value)
        # A request with another id is taken for a notification.
        if "id" not in value or type(value["id"]) in (int, str):
            return None
    return INVALID, "send one request of JSON-RPC 2.0: its id is a whole number or a text, its params are an object"


def refusal(message: str, code: int, reason: str) -> str:
    """The error that answers a message which is not read; `message` may lack its middle. The id is null if unknown."""
    found, number = _MESSAGE_ID.search(message), None
    with suppress(ValueError):
        number = json.loads(found[1] or found[2]) if found else None
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": reason}})


def storable(message: bytes) -> bytes:
    """A JSON message in which `?` stands for each lone surrogate: the SDK would drop the message without an answer."""
    if not _SURROGATE.search(message):
        return message
    try:
        return json.dumps(json.loads(message), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return message


def _register_1(server: Any, method: str, handler: Handler) -> None:
    from mcp import types

    result_class = getattr(types, f"{_CLASSES[method]}Result")

    async def handle(request: Any) -> Any:
        parameters = request.params.model_dump(by_alias=True) if request.params else {}
        context = server.request_context
        try:
            found = await handler(parameters, getattr(context.request, "scope", {}))
        finally:
            # The server would end when a request is cancelled while its answer waits to be sent.
            getattr(context.session, "_in_flight", {}).pop(context.request_id, None)
            await anyio.lowlevel.checkpoint_if_cancelled()
        return types.ServerResult(result_class.model_validate(found))

    server.request_handlers[getattr(types, f"{_CLASSES[method]}Request")] = handle


def _register_2(server: Any, method: str, handler: Handler) -> None:
    from mcp import types

    result_class = getattr(types, f"{_CLASSES[method]}Result")

    async def handle(context: Any, _: Any) -> Any:
        # The class adds what the stateless protocol wants in every result.
        return result_class.model_validate(await handler(context.params or {}, getattr(context.request, "scope", {})))

    server.add_request_handler(method, types.RequestParams, handle)
