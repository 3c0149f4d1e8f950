"""Processes of the host change MEMORY.md through its own memory tool, while this one relieves it of its first entries.

Run with the host's Python in a home. Prints what was written, what was taken out, and what the tool refused, as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

PROCESSES, ROUNDS, CAP = 4, 40, 1_000_000


def use_the_tool(number: int, relieved: Any, told: Any) -> None:
    from tools.memory_tool import MemoryStore

    store = MemoryStore(CAP, CAP)
    store.load_from_disk()
    refused = []
    for turn in range(ROUNDS):
        # However the lock is passed on, some of the changes come before a relief and some after it.
        if turn == ROUNDS // 2 and not relieved.wait(120):
            refused.append("no relief came between the changes")
        answers = [store.add("memory", f"process {number} turn {turn} x")]
        if turn % 3 == 2:
            answers.append(
                store.replace("memory", f"process {number} turn {turn} x", f"process {number} turn {turn} y")
            )
        if turn % 5 == 4:
            answers.append(store.remove("memory", f"process {number} turn {turn - 1} "))
        # An entry that has left the file cannot be changed there.
        refused += [a["error"] for a in answers if not a["success"] and not a["error"].startswith("No entry matched")]
    told.put(refused)


def main() -> None:
    from hermes_memory_pgvector.mirror.memory_file import locked

    path = Path(os.environ["HERMES_HOME"]) / "memories" / "MEMORY.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("the first entry")
    told: Any = multiprocessing.Queue()
    relieved = multiprocessing.Event()
    running = [
        multiprocessing.Process(target=use_the_tool, args=(number, relieved, told)) for number in range(PROCESSES)
    ]
    for process in running:
        process.start()
    taken: list[str] = []
    while any(process.is_alive() for process in running):
        with locked(path, 20, 1 << 20) as file:
            taken += file.entries[:2]
            file.prepare(file.entries[2:])
            file.replace()
        if len(taken) > PROCESSES:
            relieved.set()
    refused = [reason for _ in running for reason in told.get(timeout=20)]
    left = path.read_text().split("\n§\n")
    answer = {"taken": taken, "left": left, "refused": refused, "files": sorted(os.listdir(path.parent))}
    print(json.dumps({**answer, "processes": PROCESSES, "turns": ROUNDS}))


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    sys.exit(main())
