"""Drives an MCP server with the official SDK, version 1 or 2: a request on each line of a socket, answered by a line.

The number of the socket's descriptor is the argument of the program. The first line says how to connect:
{"command": [...], "env": {...}} or {"url": ..., "headers": {...}}, and the era of the protocol: {"era": "handshake"} or
{"era": "stateless"}, or with version 2 {"era": "either"}, what the server speaks.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import AsyncExitStack
from typing import Any

import anyio
import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client


async def connected(stack: AsyncExitStack, how: dict[str, Any]) -> Any:
    """A session of the SDK that is in the environment."""
    if "command" in how:
        command, *arguments = how["command"]
        transport: Any = stdio_client(StdioServerParameters(command=command, args=arguments, env=how["env"]))
    else:
        transport = await http(stack, how["url"], how["headers"])
    if hasattr(mcp, "Client"):
        mode = {"handshake": "legacy", "stateless": "2026-07-28", "either": "auto"}[how["era"]]
        return await stack.enter_async_context(mcp.Client(transport, mode=mode))
    read, write, *_ = await stack.enter_async_context(transport)
    session = await stack.enter_async_context(mcp.ClientSession(read, write))
    await session.initialize()
    return session


async def http(stack: AsyncExitStack, url: str, headers: dict[str, str]) -> Any:
    from mcp.client.streamable_http import streamable_http_client

    library = __import__("httpx2" if hasattr(mcp, "Client") else "httpx")
    client = await stack.enter_async_context(library.AsyncClient(headers=headers, timeout=60))
    return streamable_http_client(url, http_client=client)


async def main(requests: Any, results: Any) -> None:
    lines = anyio.wrap_file(requests)
    async with AsyncExitStack() as stack:
        session = await connected(stack, json.loads(await lines.readline()))
        print(json.dumps("connected"), file=results, flush=True)
        async for line in lines:
            method, *arguments = json.loads(line)
            try:
                result = await getattr(session, method)(*arguments)
                shown = result.model_dump(by_alias=True, mode="json", exclude_none=True)
            except Exception as error:  # noqa: BLE001 - the test sees it
                shown = {"raised": f"{type(error).__name__}: {error}"}
            print(json.dumps(shown), file=results, flush=True)


def drive(connection: socket.socket) -> None:
    os.chdir("/")
    with connection, connection.makefile("r") as requests, connection.makefile("w") as results:
        anyio.run(main, requests, results)


if __name__ == "__main__":
    drive(socket.socket(fileno=int(sys.argv[1])))
