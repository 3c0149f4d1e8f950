"""Conversations to store, questions to ask, and the texts that answer them."""

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
    """A question, its category, and the ids of the texts that answer it."""

    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Case:
    """One conversation: its theme, its sessions as (id, texts by id), and its questions."""

    theme: str
    sessions: tuple[tuple[str, dict[str, str]], ...]
    questions: tuple[Question, ...]

    def turns(self) -> Iterator[tuple[str, str, str]]:
        """(session, user, assistant) in order. Texts of a session are paired; the last may have an empty answer."""
        for session, texts in self.sessions:
            sides = [*texts.values(), ""]
            yield from ((session, *pair) for pair in zip(sides[::2], sides[1::2], strict=False))


def locomo(path: Path) -> list[Case]:
    """The conversations of a file in LoCoMo's format, without speakers' names and questions without evidence.

    Categories are LoCoMo's numbers, without the adversarial one, or names.
    """
    return [_conversation(f"talk-{index}", document) for index, document in enumerate(json.loads(path.read_text()))]


def flat(path: Path) -> list[Case]:
    """A set of `tests/data` as one case. The documents are unrelated, so each is a session."""
    data = json.loads(path.read_text())
    sessions = tuple((document["id"], {document["id"]: document["text"]}) for document in data["documents"])
    questions = tuple(
        Question(item["text"], item.get("category", path.stem), frozenset(item["evidence"]))
        for item in data["questions"]
    )
    return [Case(path.stem, sessions, questions)]


def _conversation(theme: str, document: dict[str, Any]) -> Case:
    conversation = document["conversation"]
    numbers = sorted(int(key[8:]) for key in conversation if re.fullmatch(r"session_\d+", key))
    sessions = tuple(
        (f"{theme}-session-{number}", {turn["dia_id"]: turn["text"] for turn in conversation[f"session_{number}"]})
        for number in numbers
    )
    known = {dia_id for _, texts in sessions for dia_id in texts}
    questions = []
    for item in document["qa"]:
        # Some lists of LoCoMo hold several ids in one string.
        evidence = known & set(re.findall(r"[A-Z]\d*:\d+", " ".join(item.get("evidence") or ())))
        category = item["category"] if isinstance(item["category"], str) else CATEGORIES.get(item["category"])
        if category and evidence:
            questions.append(Question(str(item["question"]), category, frozenset(evidence)))
    return Case(theme, sessions, tuple(questions))


def matched(case: Case, contents: Sequence[str]) -> list[frozenset[str]]:
    """The ids of the texts that equal each recalled content, without regard to case, spaces and punctuation."""
    ids: dict[str, set[str]] = {}
    for _, texts in case.sessions:
        for name, text in texts.items():
            ids.setdefault(_letters(text), set()).add(name)
    return [frozenset(ids.get(_letters(content), ())) for content in contents]


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()
