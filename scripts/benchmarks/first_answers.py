"""Measures how soon each command answers or shows progress, in a terminal of 80 columns, on a large memory.

Each command is a new process, and the memory has `--rows` turns with words and vectors. docs/benchmarks.md explains it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import shlex
import struct
import sys
import tempfile
import termios
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from operations import DIMENSIONS, ROOT, SETTINGS
from recall import load as fill
from recall_comparison import log
from recall_corpus import corpus
from rich.console import Console
from rich.table import Table
from servers import UNSYNCED, server_process, throwaway_postgres

HERE = Path(__file__).resolve().parent
FIRST_S_MAX, COLUMNS = 1.0, 80
LARGE, RENAMED, ARCHIVE = "half", "renamed", "archive.jsonl"
# In this order: `import` reads what `export` wrote, and what deletes comes last.
COMMANDS = (
    "--help", "status", "doctor", "doctor --canary", "watch", "settings list", "themes", f"sessions --theme {LARGE}",
    "list", "list --text accountant", f"list --theme {LARGE} --role user --since 7d", "show --turn 1",
    "search 'why was the load balancer restarted?'", f"search --theme {LARGE} 'who rolled back the ledger?'",
    f"preview --theme {LARGE} 'who paid for the coffee machine?'", "stats", "stats --plot", "metrics", "history",
    "facts list", "pending list", "person list", "spool list", "capture explain 'please remember the port is 5433'",
    f"add --theme {LARGE} --sync 'the port is 5433'", "backfill", "tune", f"export --theme {LARGE} {ARCHIVE}",
    f"import --theme copy --dry-run {ARCHIVE}", f"import --theme copy {ARCHIVE}",
    f"dedupe --theme {LARGE} --kind turns --dry-run", f"prune --theme {LARGE} --before 2100-01-01 --dry-run",
    "erase --list", f"remap {LARGE} {RENAMED} --yes", "erase --theme copy --yes",
    f"prune --theme {RENAMED} --before 2100-01-01 --yes", "reembed --model other --yes",
)  # fmt: skip
# What moves the cursor or colours the text.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Answer:
    """The seconds to the first output, the longest silence after it, and the end; the exit code and longest line."""

    first_s: float
    silence_s: float
    whole_s: float
    code: int
    columns: int
    text: str


def ask(command: str, environment: dict[str, str], folder: Path) -> Answer:
    """Run a command in a terminal of its own, and read what it prints as it comes."""
    began = time.monotonic()
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        line = f"exec {shlex.quote(sys.executable)} -P -m hermes_memory_pgvector {command}"
        os.execvpe("sh", ["sh", "-c", line], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    times, printed = [began], b""
    while part := _read(terminal):
        times.append(time.monotonic())
        printed += part
    whole_s = time.monotonic() - began
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(terminal)
    text = CONTROL.sub("", printed.decode(errors="replace"))
    gaps = np.diff(times)
    lines = [len(line) for line in re.split(r"[\r\n]+", text)]
    return Answer(float(gaps[0]) if len(gaps) else whole_s, float(max(gaps[1:], default=0)), whole_s, code,
                  max(lines), text)  # fmt: skip


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux says so when the other side has ended
        return b""


def show(found: dict[str, Answer]) -> None:
    table = Table("command", "first, s", "longest silence, s", "all, s", "exit code", "columns")
    for command, each in found.items():
        seconds = [f"{value:.2f}" for value in (each.first_s, each.silence_s, each.whole_s)]
        table.add_row(command, *seconds, str(each.code), str(each.columns))
    console = Console(highlight=False)
    console.print(table)
    slowest = max(found, key=lambda command: found[command].first_s)
    first_s = found[slowest].first_s
    mark = "✓" if first_s <= FIRST_S_MAX else "✗"
    console.print(f"{mark} longest wait for a first output: {first_s:.2f} s ({slowest}; <= {FIRST_S_MAX:g} s)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench answers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the memory (default 100000)")
    parser.add_argument("--json", metavar="FILE", help="write the figures and what was printed to this file")
    given = parser.parse_args()
    megabytes = max(512, given.rows * 6 // 1000)
    options = {**UNSYNCED, "shared_buffers": f"{megabytes}MB", "maintenance_work_mem": f"{megabytes}MB"}
    found: dict[str, Answer] = {}
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="hermes-pgvector-bench-")))
        server = ending.enter_context(throwaway_postgres((megabytes << 20) * 2, **options))
        data = corpus(given.rows, DIMENSIONS, "", ROOT / ".cache" / "bench_vectors.npz")
        fill(server.dsn, data)
        np.save(folder / "questions.npy", data.questions.astype(np.float32))
        command = [sys.executable, "-P", HERE / "embedding_server.py", "0", "0", str(DIMENSIONS)]
        url = ending.enter_context(server_process([*command, folder / "questions.npy"]))
        values = {"dsn": server.dsn, "embed_url": f"{url}/v1", **SETTINGS}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
        environment |= {f"HERMES_PGVECTOR_{name.upper()}": value for name, value in values.items()}
        environment |= {"HERMES_HOME": str(folder), "TERM": "xterm-256color"}
        for each in COMMANDS:
            found[each] = ask(each, environment, folder)
            log(f"{each}: {found[each].first_s:.2f} s, {found[each].whole_s:.1f} s in all, {found[each].code}")
    show(found)
    if given.json:
        answers = {each: asdict(answer) for each, answer in found.items()}
        Path(given.json).write_text(json.dumps({"rows": given.rows, "answers": answers}, indent=1) + "\n")


if __name__ == "__main__":
    main()
