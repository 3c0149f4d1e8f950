"""A log of what an agent intended and what its hooks accepted, and the memory state that follows from it.

A line is written by one `write` call before a hook is called, and one after it has returned, so that of each agent
that was killed at most the last act is in doubt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Diary:
    """Appends to the log of one home. Safe for several processes."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def meant(self, key: str, kind: str, old: str = "", new: str = "") -> None:
        self._write("meant", key, kind, old, new)

    def done(self, key: str) -> None:
        self._write("done", key)

    def _write(self, *words: str) -> None:
        line = json.dumps(words).encode() + b"\n"
        assert os.write(self._fd, line) == len(line)


@dataclass
class Model:
    """The state that follows from the log. `doubtful` are acts that a hook may or may not have accepted."""

    turns: set[str] = field(default_factory=set)
    maybe_turns: set[str] = field(default_factory=set)
    entries: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    doubtful: list[tuple[str, str]] = field(default_factory=list)
    changes: int = 0

    def permits(self, entries: set[str]) -> str:
        """Why these entries contradict the log; empty when they do not."""
        undecided: set[str] = set()
        for old, new in self.doubtful:
            if old and new and (old in entries) == (new in entries):
                return f"of {old!r} and {new!r} not exactly one is there"
            undecided |= {old, new}
        if lost := self.entries - entries:
            return f"lost: {sorted(lost)[:5]}"
        if back := entries - self.entries - undecided:
            return f"came back, or from nowhere: {sorted(back)[:5]}"
        return ""


def read(*paths: Path) -> Model:
    """The model of the diaries of some homes; entries of doubtful acts are left out of `entries` and `gone`."""
    acts: dict[str, tuple[str, str, str]] = {}
    model = Model()
    for word, key, *rest in _lines(paths):
        if word == "meant":
            acts[key] = (rest[0], rest[1], rest[2])
            continue
        kind, old, new = acts.pop(key)
        if kind == "turn":
            model.turns.add(new)
        else:
            model.changes += 1
            model.entries = model.entries - {old} | ({new} - {""})
            model.gone = (model.gone | ({old} - {""})) - {new}
    for kind, old, new in acts.values():
        if kind == "turn":
            model.maybe_turns.add(new)
        else:
            model.doubtful.append((old, new))
            model.entries -= {old, new}
            model.gone -= {old, new}
    return model


def _lines(paths: Iterable[Path]) -> Iterator[list[Any]]:
    for path in filter(Path.exists, paths):
        yield from map(json.loads, path.read_text().splitlines())
