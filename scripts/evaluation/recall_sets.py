"""The recall sets: notes, turns and questions of several classes, in files of one shape (`tests/data/recall`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

Half = Literal["dev", "held_out"]
THEME = "recall-sets"
TOOLS = {"entry": ("recall_memory",), "turn": ("recall_conversation",)}
BOTH = ("recall_memory", "recall_conversation")


@dataclass(frozen=True)
class Row:
    """A note (`entry`) with its target and text, or a `turn` with its two sides, in a theme."""

    theme: str
    id: str
    kind: str
    session: str
    at: datetime
    target: Any = ""
    text: str = ""
    user: str = ""
    assistant: str = ""


@dataclass(frozen=True)
class Question:
    """A question in a theme, asked at `now`, the ids of rows that answer it, and of the `older` ones they replace."""

    theme: str
    id: str
    category: str
    kind: str
    lang: str
    text: str
    answers: frozenset[str]
    older: frozenset[str]
    now: datetime

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools that are asked."""
        return TOOLS.get(self.kind, BOTH)


@dataclass(frozen=True)
class RecallSets:
    """Everything that goes into one memory, the oldest row first, and the questions of one half."""

    rows: Sequence[Row]
    questions: Sequence[Question]

    def conversation(self) -> dict[str, Any]:
        """The rows and questions as `run_memory.py` takes them, which knows neither times nor the sessions of notes."""
        return {
            "theme": THEME,
            "entries": [(row.target, row.text) for row in self.rows if row.kind == "entry"],
            "turns": [(row.session, row.user, row.assistant) for row in self.rows if row.kind == "turn"],
            "questions": [(question.text, question.tools) for question in self.questions],
        }

    def ids(self) -> dict[str, str]:
        """The id of the row for each text that stands in one row only."""
        texts = [(text, row.id) for row in self.rows for text in (row.text, row.user, row.assistant) if text]
        times = Counter(text for text, _ in texts)
        return {text: name for text, name in texts if times[text] == 1}


def load(folder: Path, half: Half, classes: Sequence[str] = (), *, alone: bool = False) -> RecallSets:
    """All rows of a folder, and the questions of a half, of all classes or of some.

    With `alone` each class has a theme of its own rows; a class without rows is left out.
    """
    paths = sorted(folder.glob("*.json"))
    files = [(path.stem if alone else THEME, json.loads(path.read_text(encoding="utf-8"))) for path in paths]
    rows = [
        Row(theme, **{name: value for name, value in row.items() if name not in ("at", "lang")}, at=_time(row["at"]))
        for theme, file in files
        for row in file["rows"]
    ]
    questions = [
        Question(
            theme=theme, id=item["id"], category=item["class"], kind=item["kind"], lang=item["lang"],
            text=item["question"],
            answers=frozenset(item["answers"]), older=frozenset(item.get("older", ())), now=_time(item["now"]),
        )
        for theme, file in files
        for item in file["questions"]
        if (file["rows"] or not alone) and item["half"] == half and (not classes or item["class"] in classes)
    ]  # fmt: skip
    if not rows or not questions:
        raise SystemExit(f"{folder} has {len(rows)} rows, and {len(questions)} questions of the half {half}")
    return RecallSets(sorted(rows, key=lambda row: row.at), questions)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
