"""Measures how long the MCP server takes from the start of its process to the answer to `initialize`.

It is compared with a server of the same version of the SDK that has no tools. Both run in turns, so that the load of
the machine meets both alike. Neither Postgres nor the embedder is running: the start waits for neither.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
RATIO_MAX = 1.5
BARE = """
import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
async def main():
    server = Server("bare")
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())
anyio.run(main)
"""
OPENING = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench mcp", description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="starts of each server (default 15)")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    return parser.parse_args()


def start(command: list[str], environment: dict[str, str]) -> float:
    """The milliseconds until a new server has answered its first request."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd="/"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(OPENING).encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        passed = 1000 * (time.perf_counter() - began)
        process.stdin.close()
    assert "result" in answer, answer
    return passed


def measure(python: str, runs: int) -> dict[str, Any]:
    """The figures with the version of the SDK that this Python has."""
    with tempfile.TemporaryDirectory(prefix="hermes-pgvector-bench-") as home:
        environment = {
            "PATH": os.environ["PATH"], "HOME": home, "HERMES_HOME": home,
            "HERMES_PGVECTOR_DSN": "postgresql://127.0.0.1:9/none", "HERMES_PGVECTOR_EMBED_URL": "http://127.0.0.1:9",
        }  # fmt: skip
        bare = [python, "-P", "-c", BARE]
        ours = [str(Path(python).with_name("hermes-pgvector")), "mcp", "--theme", "bench"]
        for command in (bare, ours):
            start(command, environment)  # writes the bytecode
        found = [[start(command, environment) for command in (bare, ours)] for _ in range(runs)]
    times = {name: [run[index] for run in found] for index, name in enumerate(("bare", "ours"))}
    figures = {
        f"{name}_ms_{kind}": pick(values)
        for name, values in times.items()
        for kind, pick in (("median", statistics.median), ("worst", max))
    }
    return {**figures, "ratio": figures["ours_ms_median"] / figures["bare_ms_median"]}


def main() -> int:
    given = arguments()
    table = Table("SDK", "bare, ms (worst)", "ours, ms (worst)", f"ratio (goal: {RATIO_MAX} at most)")
    results = {}
    for name in ("mcp-1", ""):
        made = subprocess.run(
            [ROOT / "scripts" / "environment", *filter(None, [name])], stdout=subprocess.PIPE, text=True
        )
        if made.returncode:
            return made.returncode
        python = made.stdout.strip()
        version = "import importlib.metadata; print(importlib.metadata.version('mcp'))"
        sdk = subprocess.run(
            [python, "-P", "-c", version], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()
        results[sdk] = figures = measure(python, given.runs)
        cells = (f"{figures[f'{who}_ms_median']:.0f} ({figures[f'{who}_ms_worst']:.0f})" for who in ("bare", "ours"))
        table.add_row(sdk, *cells, f"{figures['ratio']:.2f}")
    Console().print(table)
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(figures["ratio"] <= RATIO_MAX for figures in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
