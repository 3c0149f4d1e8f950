"""Fits the map from multilingual-e5-small to all-MiniLM-L6-v2 that the bundled model uses: `alignment.py WORDNET`.

WORDNET is the folder of WordNet 3.0, as Debian's package wordnet-base installs it in /usr/share/wordnet. The map is
fitted to examples and definitions of it, chosen at random. Run it in the environment that `scripts/environment` makes;
it takes some ten minutes, and writes the file in the package.
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hermes_memory_pgvector.embedding.bundled import minilm_e5
from hermes_memory_pgvector.embedding.bundled.e5 import E5
from hermes_memory_pgvector.embedding.bundled.minilm import MiniLM

TEXTS = 10_000
# Examples are sentences, definitions are not: there are more of the former.
EXAMPLES, DEFINITIONS = 8000, 4000
# The share of texts with a capital and a full stop.
SENTENCES_SHARE = 0.6
# Of three texts, one is also embedded as a query.
QUERY_STEP = 3
# Weight of small coefficients in the regression. From 0.3 to 3 the recall is about the same.
RIDGE = 1.0


def main() -> None:
    texts = chosen(Path(sys.argv[1]))
    e5, minilm = E5(), MiniLM()
    passages = np.array([e5.passage(text) for text in texts])
    queries = np.array([e5.query(text) for text in texts[::QUERY_STEP]])
    target = np.array([minilm_e5.unit(minilm.vector(minilm.tokens(text))) for text in texts])
    with minilm_e5.ALIGNMENT.open("wb") as file:
        np.savez(file, allow_pickle=False, **alignment(passages, queries, target))


def chosen(folder: Path) -> list[str]:
    """The texts, always the same ones."""
    chance = random.Random(1)
    examples: list[str] = []
    definitions: list[str] = []
    for name in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{name}").read_text(encoding="utf-8").splitlines():
            gloss = line.partition(" | ")[2].strip()
            examples += re.findall(r'"([^"]{15,160})"', gloss)
            definition = gloss.split(";")[0].strip()
            definitions += [definition] if 30 < len(definition) < 160 else []
    chance.shuffle(examples)
    chance.shuffle(definitions)
    texts = examples[:EXAMPLES] + definitions[:DEFINITIONS]
    chance.shuffle(texts)
    texts = [f"{text[0].upper()}{text[1:]}." if chance.random() < SENTENCES_SHARE else text for text in texts]
    return texts[:TEXTS]


def alignment(
    passages: NDArray[np.float32], queries: NDArray[np.float32], target: NDArray[np.float32]
) -> dict[str, NDArray[np.floating]]:
    """The mean of each set of vectors, and the map (ridge regression) between vectors without their means."""
    means = {"e5_passage_mean": passages, "e5_query_mean": queries, "minilm_mean": target}
    of = {name: vectors.mean(axis=0) for name, vectors in means.items()}
    given = np.vstack([passages - of["e5_passage_mean"], queries - of["e5_query_mean"]]).astype(np.float64)
    wanted = np.vstack([target, target[::QUERY_STEP]]) - of["minilm_mean"]
    coefficients = np.linalg.solve(given.T @ given + RIDGE * np.eye(given.shape[1]), given.T @ wanted)
    return {**of, "map": coefficients.astype(np.float16)}


if __name__ == "__main__":
    main()
