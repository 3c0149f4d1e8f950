"""Compares the vectors of both columns on a sample of rows: with what the model answers, and by recalls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...embedding.protocol import Embedder
from ...errors import EmbedderMismatch
from ...model import Vector
from ...recall.vector_search import GRAPH_SETTINGS
from ...settings import Settings
from ...store import vector_sample
from ...store.schema.preflight import Connection
from ...store.vector_sample import Key, Sampled

SAMPLE_ROWS, TEXTS_MAX = 40, 4
NEAREST = 10
# The least share of the sample that has to fit.
SHARE_MIN = 0.9
# An endpoint may answer a text a little differently in another request. The tolerance is twice the largest difference
# that is seen for some texts, within these bounds; it is a cosine distance.
TWICE, TOLERANCE_MIN, TOLERANCE_MAX = 8, 0.001, 0.02
# Graph indexes miss some of the rows that are so near to each other.
ALIKE = 0.01


class Comparison(NamedTuple):
    """Of `sampled` rows, `matching` have the new vectors of their texts, and `found` are found by them in the indexes.

    `same_pct` is how many of the nearest rows of a row are the same by the old and by the new vectors. `problem` says
    why the new vectors cannot be used, else it is empty.
    """

    sampled: int
    matching: int
    found: int
    same_pct: float
    problem: str


def compare(connection: Connection, embedder: Embedder, settings: Settings) -> Comparison:
    """Embed the texts of some rows again, and recall these rows by both columns. Raises the errors of the embedder."""
    rows, fresh = _embedded(vector_sample.sample(connection, SAMPLE_ROWS), embedder, settings)
    exact, alike = _matching(rows, fresh, _tolerance(rows, fresh, embedder, settings))
    # The text before a turn, which is embedded with it, may have been deleted since; then only its own text counts.
    settled = [fits for row, fits in zip(rows, exact, strict=True) if row.kind != "turns"] or exact
    found, same = 0, list[float]()
    for row in rows:
        new = _nearest(connection, row, row.vectors[0], second=True)
        reached = _reached(connection, row, row.vectors[0], new) and _finds_chunks(connection, row)
        # A row that is deleted meanwhile cannot be found.
        found += reached or not vector_sample.is_there(connection, row)
        if row.old is not None:
            old = _others(row.key, _nearest(connection, row, row.old, second=False))
            same += [len(old & _others(row.key, new)) / len(old)] if old else []
    problem = _problem(len(rows), sum(alike), found) or _problem(len(settled), sum(settled), len(settled))
    return Comparison(len(rows), sum(alike), found, round(100 * sum(same) / len(same), 1) if same else 100.0, problem)


def _problem(rows: int, matching: int, found: int) -> str:
    if matching < SHARE_MIN * rows:
        return f"{rows - matching} of {rows} rows have vectors that the model does not make of their texts now"
    if found < SHARE_MIN * rows:
        return f"{rows - found} of {rows} rows are not found by their own vectors in the new indexes"
    return ""


def _embedded(
    sampled: Sequence[Sampled], embedder: Embedder, settings: Settings
) -> tuple[list[Sampled], list[list[Vector]]]:
    """The rows whose texts the model does not refuse, and what it answers to up to TEXTS_MAX texts of each."""
    rows, fresh = list[Sampled](), list[list[Vector]]()
    for row in sampled:
        try:
            fresh.append(embedder.embed_passages(row.passage.texts(settings)[:TEXTS_MAX], settings.embed_timeout_s))
        except (EmbedderMismatch, ValueError):
            continue
        rows.append(row)
    return rows, fresh


def _tolerance(
    rows: Sequence[Sampled], fresh: Sequence[Sequence[Vector]], embedder: Embedder, settings: Settings
) -> float:
    """How far apart two answers to the same text may be: some texts are embedded once more, together."""
    firsts = [row.passage.texts(settings)[0] for row in rows[:TWICE]]
    again = embedder.embed_passages(firsts, settings.embed_timeout_s)
    largest = max((_distance(one[0], other) for one, other in zip(fresh, again, strict=False)), default=0.0)
    return min(TOLERANCE_MAX, max(TOLERANCE_MIN, 2 * largest))


def _matching(
    rows: Sequence[Sampled], fresh: Sequence[Sequence[Vector]], tolerance: float
) -> tuple[list[bool], list[bool]]:
    """Of each row, whether its vectors are those of its texts, and whether they are nearer to them than to most others.

    The second one holds also when its own vector was made with another text before it.
    """
    exact, alike = list[bool](), list[bool]()
    for row, own in zip(rows, fresh, strict=True):
        first, *chunks = (_distance(*pair) for pair in zip(row.vectors, own, strict=False))
        complete = len(row.vectors) >= len(own) and max(chunks, default=0.0) <= tolerance
        exact.append(complete and first <= tolerance)
        others = sorted(_distance(row.vectors[0], other[0]) for other in fresh)
        alike.append(exact[-1] or (complete and first < others[len(others) // 4]))
    return exact, alike


def _nearest(
    connection: Connection, row: Sampled, vector: Vector, *, second: bool, pieces: bool = False
) -> list[tuple[Key, float]]:
    return vector_sample.nearest(
        connection, row.kind, vector, NEAREST + 1, second=second, pieces=pieces, **GRAPH_SETTINGS
    )


def _finds_chunks(connection: Connection, row: Sampled) -> bool:
    return all(
        _reached(connection, row, vector, _nearest(connection, row, vector, second=True, pieces=True))
        for vector in row.vectors[1:TEXTS_MAX]
    )


def _reached(connection: Connection, row: Sampled, vector: Vector, found: Sequence[tuple[Key, float]]) -> bool:
    """Whether a row is found by a vector of its own, or so many others that are alike.

    Rows with equal vectors are linked to each other only, so a graph index may reach none of many. That tells nothing
    of the model.
    """
    if any(key == row.key for key, _ in found) or (len(found) > NEAREST and found[-1][1] <= ALIKE):
        return True
    return vector_sample.count_equal(connection, row.kind, vector, NEAREST + 1) > NEAREST


def _others(key: Key, found: Sequence[tuple[Key, float]]) -> set[Key]:
    return {other for other, _ in found if other != key}


def _distance(one: Vector, other: Vector) -> float:
    """The cosine distance of two unit vectors of the same length."""
    return 1 - sum(a * b for a, b in zip(one, other, strict=True))
