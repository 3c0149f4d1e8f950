"""What is told to a memory, what it is asked, and what it should find."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}


@dataclass(frozen=True)
class Question:
    """A question of a category, and the ids of the texts that answer it."""

    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Case:
    """One conversation: a theme of its own, its sessions as (id, texts by their ids), and its questions."""

    theme: str
    sessions: tuple[tuple[str, dict[str, str]], ...]
    questions: tuple[Question, ...]

    def turns(self) -> Iterator[tuple[str, str, str]]:
        """(session, user, assistant) in order. The texts of a session go in pairs; a last single one has no answer."""
        for session, texts in self.sessions:
            told = [*texts.values(), ""]
            yield from ((session, *pair) for pair in zip(told[::2], told[1::2], strict=False))


def locomo(path: Path) -> list[Case]:
    """The conversations of a file in LoCoMo's shape, without speakers' names and adversarial questions."""
    return [_conversation(f"talk-{index}", document) for index, document in enumerate(json.loads(path.read_text()))]


def flat(path: Path) -> list[Case]:
    """A set of `tests/data`: documents that have nothing to do with each other, so each is a session of its own."""
    data = json.loads(path.read_text())
    sessions = tuple((document["id"], {document["id"]: document["text"]}) for document in data["documents"])
    questions = tuple(Question(asked["text"], path.stem, frozenset(asked["evidence"])) for asked in data["questions"])
    return [Case(path.stem, sessions, questions)]


def _conversation(theme: str, document: dict[str, Any]) -> Case:
    told = document["conversation"]
    numbers = sorted(int(key[8:]) for key in told if re.fullmatch(r"session_\d+", key))
    sessions = tuple(
        (f"{theme}-session-{number}", {turn["dia_id"]: turn["text"] for turn in told[f"session_{number}"]})
        for number in numbers
    )
    known = {dia_id for _, texts in sessions for dia_id in texts}
    questions = []
    for asked in document["qa"]:
        # A few of the data's lists hold several ids in one string.
        evidence = known & set(re.findall(r"D\d+:\d+", " ".join(asked.get("evidence") or ())))
        if asked["category"] in CATEGORIES and evidence:
            questions.append(Question(str(asked["question"]), CATEGORIES[asked["category"]], frozenset(evidence)))
    return Case(theme, sessions, tuple(questions))


def matched(case: Case, contents: Sequence[str]) -> list[frozenset[str]]:
    """For each recalled content the ids of the texts that it is, whatever the tool did to spaces and signs."""
    ids: dict[str, set[str]] = {}
    for _, texts in case.sessions:
        for name, text in texts.items():
            ids.setdefault(_bare(text), set()).add(name)
    return [frozenset(ids.get(_bare(content), ())) for content in contents]


def _bare(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()
