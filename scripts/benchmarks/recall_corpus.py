"""Test data for recall: turns of 1 kB, vectors like those of the bundled model, themes of many sizes, questions."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Share of all rows by theme. The other rows are in themes of OTHERS_ROWS rows each.
THEMES = {"half": 0.5, "sixth": 0.17, "twentieth": 0.05, "medium": 0.0085, "small": 0.005, "smaller": 0.00085,
          "smallest": 0.0005}  # fmt: skip
OTHERS_ROWS = 300
TEXTS = 5000
TEXT_CHARS = 1000
# A word of every text, to measure what very common words cost.
COMMON_WORD = "server"
SEEDS, QUESTIONS, SEED_CHARS = 1200, 200, 200

_WHO = ("the night shift", "Priya", "our contractor", "the auditor", "Tomás", "a customer in Oslo", "the new intern",
        "Wanjiru", "the release manager", "somebody from finance")  # fmt: skip
DEEDS = ("restarted", "measured", "renamed", "forgot", "rebuilt", "asked about", "paid for", "broke", "documented",
        "moved", "compared", "rolled back", "translated", "photographed", "ordered", "cancelled")  # fmt: skip
TOPICS = ("the invoice importer", "a backup of the ledger", "the coffee machine", "two certificates",
         "the staging cluster",
         "the garden irrigation", "a batch of sensors", "the holiday calendar", "our mail relay", "the search index",
         "a marathon plan", "the Kyoto itinerary", "the load balancer", "grandmother's recipe", "the tax return",
         "a cracked gearbox", "the onboarding course", "seven orphaned volumes", "the choir's sheet music",
         "the vaccine fridge")  # fmt: skip
_WHY = ("because the lease ran out", "after the storm", "before anyone had noticed", "as agreed in spring",
        "although the budget was spent", "since the old one leaked", "to please the regulator", "for the third time",
        "while the queue was empty", "so that the tests would pass")  # fmt: skip


@dataclass(frozen=True)
class Corpus:
    """Vectors of the rows (rows × dimensions) and of the questions, and the theme of each row."""

    vectors: Array
    questions: Array
    themes: list[str]

    def rows_of(self, theme: str | None) -> Array:
        """The indices of the rows of a theme, or of all rows for None."""
        return np.array([n for n, name in enumerate(self.themes) if theme in (None, name)])

    def nearest(self, question: int, rows: Array, count: int = 10, step: int = 50_000) -> list[tuple[float, int]]:
        """The `count` best (cosine, row) among `rows` by exact search, from vectors in half precision."""
        asked = self.questions[question].astype(np.float32)
        cosines = np.concatenate(
            [self.vectors[rows[n : n + step]].astype(np.float32) @ asked for n in range(0, len(rows), step)]
        )
        best = np.argsort(-cosines)[:count]
        return [(float(cosines[n]), int(rows[n])) for n in best]


def texts(count: int, chance: random.Random) -> list[str]:
    """Texts of TEXT_CHARS characters, each with one main topic, rare names and numbers."""
    letters = ("bdfgklmnprstvz", "aeiou", "lmnrst", "aeiou", "bdgkptx")
    rare = ["".join(map(chance.choice, letters)) + str(n % 97) for n in range(5000)]
    weights = [1 / (n + 5) for n in range(len(rare))]
    made = []
    for number in range(count):
        topic = chance.choice(TOPICS)
        text = f"Note {number}, on {COMMON_WORD} {number % 311}:"
        while len(text) < TEXT_CHARS:
            seen = ", ".join(chance.choices(rare, weights, k=4))
            text += (
                f" {chance.choice(_WHO)} {chance.choice(DEEDS)} {chance.choice((topic, chance.choice(TOPICS)))} "
                f"{chance.choice(_WHY)}; see {seen}."
            )
        made.append(text)
    return made


def phrase(number: int, length: int = 8) -> str:
    """A question of consecutive words of a text."""
    chance = random.Random(number)
    words = texts(1, chance)[0].split()[4:]
    at = chance.randrange(len(words) - length)
    return " ".join(words[at : at + length])


def keywords(number: int) -> str:
    """A question of two or three keywords, as a model passes it to a tool."""
    chance = random.Random(number)
    topic = chance.choice(TOPICS).split()[-2:]
    return " ".join([*topic, chance.choice(DEEDS).split()[0]][: chance.choice((2, 3))])


def vectors(rows: int, dimensions: int, given: str, cache: Path) -> tuple[Array, Array]:
    """Unit vectors of rows and questions: from the file `given`, else from the bundled model; see `enlarged`."""
    passages, questions = seeds(given, cache)
    return _widened(enlarged(passages, rows), dimensions), _widened(questions, dimensions)


def seeds(given: str, cache: Path) -> tuple[Array, Array]:
    """Unit vectors of real passages and questions: from the file `given`, else from the bundled model."""
    if not given and not cache.is_file():
        _embed(cache)
    data = np.load(given or cache)
    questions = data["queries"]
    return data["passages"], questions[np.random.default_rng(3).permutation(len(questions))[:QUESTIONS]]


def enlarged(passages: Array, rows: int) -> Array:
    """The passages and mixtures of them, `rows` in all. A mixture is a point between two passages, shifted by a third
    of the difference of two others.
    """
    chance = np.random.default_rng(7)
    made = np.empty((rows, passages.shape[1]), np.float16)
    made[: len(passages)] = passages[:rows]
    for start in range(len(passages), rows, 10_000):
        picks = chance.integers(0, len(passages), (4, min(10_000, rows - start)))
        share = chance.uniform(0.5, 0.9, (picks.shape[1], 1))
        a, b, c, d = passages[picks]
        mixed = share * a + (1 - share) * b + 0.33 * (c - d)
        made[start : start + len(mixed)] = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    return made


def themes(made: Array, rows: int) -> list[str]:
    """A theme for each row. Vectors of one theme are a little more similar, as texts on one topic are."""
    chance = np.random.default_rng(11)
    order = np.arange(rows)
    names: list[str] = [""] * rows
    for theme, share in THEMES.items():
        towards = made[chance.integers(0, rows)].astype(np.float32)
        likeness = np.concatenate(
            [made[order[n : n + 50_000]].astype(np.float32) @ towards for n in range(0, len(order), 50_000)]
        )
        drawn = likeness + chance.normal(0, 2 * likeness.std(), len(order))
        by_likeness = np.argsort(-drawn)
        taken = order[by_likeness[: round(share * rows)]]
        order = order[np.sort(by_likeness[len(taken) :])]
        for row in taken:
            names[row] = theme
    for place, row in enumerate(order):
        names[row] = f"other-{place // OTHERS_ROWS}"
    return names


def corpus(rows: int, dimensions: int, given: str, cache: Path) -> Corpus:
    """The test data; the same for the same arguments."""
    made, questions = vectors(rows, dimensions, given, cache)
    return Corpus(made, questions, themes(made, rows))


def _widened(part: Array, dimensions: int) -> Array:
    """The vectors repeated to the given number of dimensions. Cosines stay the same."""
    times, rest = divmod(dimensions, part.shape[1])
    if rest:
        raise SystemExit(f"--dimensions {dimensions} is not a multiple of the vectors' {part.shape[1]} dimensions")
    return np.tile(part / np.sqrt(times), (1, times)).astype(np.float16) if times > 1 else part.astype(np.float16)


def _embed(cache: Path) -> None:
    from hermes_memory_pgvector.embedding.bundled.local import LocalEmbedder

    model = LocalEmbedder()
    made = texts(SEEDS + QUESTIONS, random.Random(1))
    print(f"embedding {len(made)} texts with {model.model}, once …", file=sys.stderr, flush=True)
    passages = _array(model.embed_passages([text[:SEED_CHARS] for text in made[:SEEDS]], 3600))
    questions = _array([model.embed_query(text[25:100], 60) for text in made[SEEDS:]])
    cache.parent.mkdir(exist_ok=True)
    np.savez(cache, passages=passages, queries=questions)


def _array(rows: Sequence[Sequence[float]]) -> Array:
    return np.array(rows, np.float32)
