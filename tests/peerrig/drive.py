"""Runs in the environment of the package hermes-memory: drives its server by the client of the MCP SDK.

Usage: drive.py DATABASE. Reads calls from stdin, a JSON list of a name and arguments a line, and prints each answer as
a JSON text.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(database: str) -> None:
    """Answer calls until stdin ends."""
    server = StdioServerParameters(
        command=str(Path(sys.executable).parent / "hermes-memory"),
        env={**os.environ, "HERMES_MEMORY_DB": database},
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, arguments = json.loads(line)
            answer = await session.call_tool(name, arguments)
            print(json.dumps(answer.content[0].text), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
