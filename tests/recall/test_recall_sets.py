"""The files of the recall sets (`tests/data/recall`) have the shape that their README describes."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "data" / "recall"
FILES: dict[str, Any] = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}
ROWS = {row["id"]: row for file in FILES.values() for row in file["rows"]}
QUESTIONS = [question for file in FILES.values() for question in file["questions"]]
QUESTIONS_MIN, LANGUAGES_MIN = 60, 8


def test_every_row_has_an_id_of_its_own_a_time_and_texts() -> None:
    ids = [row["id"] for file in FILES.values() for row in file["rows"]]
    assert [name for name, times in Counter(ids).items() if times > 1] == []
    for row in ROWS.values():
        assert datetime.fromisoformat(row["at"].replace("Z", "+00:00")).tzinfo
        assert row["session"]
        if row["kind"] == "entry":
            assert row["target"] in ("memory", "user")
            assert row["text"].strip()
        else:
            assert row["kind"] == "turn"
            assert row["user"].strip()
            assert row["assistant"].strip()


def test_no_two_notes_and_no_two_turns_are_equal() -> None:
    texts = [row.get("text") or (row["user"], row["assistant"]) for row in ROWS.values()]
    assert [text for text, times in Counter(texts).items() if times > 1] == []


def test_every_question_has_an_id_of_its_own_and_answers_of_its_kind() -> None:
    assert [name for name, times in Counter(one["id"] for one in QUESTIONS).items() if times > 1] == []
    for question in QUESTIONS:
        kinds = {ROWS[name]["kind"] for name in question["answers"]}
        if question["class"] == "no_answer":
            assert not kinds
        else:
            assert kinds == ({"entry", "turn"} if question["kind"] == "both" else {question["kind"]})
        assert question["question"].strip()
        assert datetime.fromisoformat(question["now"].replace("Z", "+00:00")).tzinfo


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_class_has_enough_questions_and_its_halves_are_alike(name: str) -> None:
    questions = FILES[name]["questions"]
    assert len(questions) >= QUESTIONS_MIN
    assert {question["class"] for question in questions} == {name}
    halves = Counter(question["half"] for question in questions)
    assert set(halves) == {"dev", "held_out"}
    assert abs(halves["dev"] - halves["held_out"]) <= 1
    for lang, of_lang in groupby(sorted(questions, key=lambda one: one["lang"]), key=lambda one: one["lang"]):
        halves = Counter(question["half"] for question in of_lang)
        assert abs(halves["dev"] - halves["held_out"]) <= 1, lang


def test_an_answer_that_replaces_rows_is_later_than_they_are() -> None:
    for question in FILES["newest"]["questions"]:
        assert question["older"]
        older = max(ROWS[name]["at"] for name in question["older"])
        assert min(ROWS[name]["at"] for name in question["answers"]) > older, question["id"]


def test_twins_are_two_rows_that_replace_nothing() -> None:
    twins = FILES["newest"]["twins"]
    assert len(twins) >= 100
    replaced = {
        name for question in FILES["newest"]["questions"] for name in (*question["older"], *question["answers"])
    }
    for pair in twins:
        assert len(set(pair)) == 2
        assert set(pair) <= set(ROWS)
        assert not set(pair) & replaced


def test_several_languages_are_asked_in() -> None:
    assert len({question["lang"] for question in QUESTIONS}) >= LANGUAGES_MIN
    for question in FILES["other_language"]["questions"]:
        assert question["lang"] not in {ROWS[name]["lang"] for name in question["answers"]}, question["id"]
