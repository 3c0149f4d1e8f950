"""What the default model finds by its vectors alone, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from growth import spent

from hermes_memory_pgvector.embedding.bundled.e5 import E5
from hermes_memory_pgvector.embedding.bundled.local import BundledModel
from hermes_memory_pgvector.embedding.bundled.minilm_e5 import MiniLME5
from hermes_memory_pgvector.embedding.factory import bundled_available

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not bundled_available(), reason="the bundled model is not installed"),
]
SET = Path(__file__).parents[2] / "data" / "meaning.json"
IN_FIVE_MIN = {"paraphrase": 0.95, "language": 0.8, "typos": 0.9, "identifiers": 1.0, "word forms": 1.0}
PROSE = (
    "The export stopped after two thousand lines, and the log only says that the other side closed the connection. "
    "The proxy was suspected first, because its time limit had been lowered in spring, but that limit is ten minutes. "
)


@pytest.fixture(scope="module")
def model() -> BundledModel:
    return MiniLME5()


def test_the_right_fact_is_among_the_first_five(model: BundledModel) -> None:
    found = in_five(model, json.loads(SET.read_text(encoding="utf-8")))
    assert found.keys() == IN_FIVE_MIN.keys()
    assert {name: share for name, share in found.items() if share < IN_FIVE_MIN[name]} == {}


def test_a_text_of_1_000_english_characters_takes_at_most_a_third_of_the_time_of_e5(model: BundledModel) -> None:
    text = (PROSE * 5)[:1000]
    assert spent(model.passage, text) <= spent(E5().passage, text) / 3


def in_five(model: BundledModel, data: dict[str, Any]) -> dict[str, float]:
    """The share of the questions of each category whose document is among the five nearest."""
    ids = [document["id"] for document in data["documents"]]
    documents = np.array([model.passage(document["text"]) for document in data["documents"]])
    hits: dict[str, list[bool]] = {}
    for question in data["questions"]:
        nearest = np.argsort(documents @ model.query(question["text"]))[-5:]
        hits.setdefault(question["category"], []).append(question["evidence"][0] in [ids[index] for index in nearest])
    return {category: sum(of_category) / len(of_category) for category, of_category in hits.items()}
