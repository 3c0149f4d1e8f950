"""The check that every answer of an embedder passes before anyone sees it."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Sequence

from ..errors import EmbedderMismatch
from ..model import Vector

# Vectors this close to unit length are handed on as they came.
_UNIT_TOLERANCE = 1e-3
# Numbers below it have so few digits that a vector of them cannot be scaled.
_NORM_MIN = sys.float_info.min


class TextRefused(EmbedderMismatch):
    """The embedder works, but not for this text, however short it is cut; the other texts of the call are fine.

    `index` is its place in the call. Asking again without it helps; asking again with it does not.
    """

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


def checked(
    raw: Sequence[Iterable[float]], *, count: int, dimensions: int | None, who: str, trusted: bool = False
) -> list[Vector]:
    """The vectors scaled to unit length, once they fit: `count` of them, of `dimensions` finite numbers, not all zero.

    With `dimensions` None they must agree among themselves. `who` names the embedder in the error. Raises
    EmbedderMismatch, or TextRefused when some vectors are usable (or the embedder is `trusted`, having answered well
    before) and one is not.
    """
    if len(raw) != count:
        raise EmbedderMismatch(f"{who} answered {len(raw)} vectors to {count} texts")
    rows = [_numbers(vector, index, who) for index, vector in enumerate(raw)]
    expected = dimensions or len(rows[0])
    for index, row in enumerate(rows):
        if not row or len(row) != expected:
            raise EmbedderMismatch(_wrong_length(who, index, len(row), expected, known=bool(dimensions)))
    norms = [math.hypot(*row) for row in rows]
    bad = [index for index, norm in enumerate(norms) if not _NORM_MIN <= norm < math.inf]
    if bad:
        fault = "only zeros" if norms[bad[0]] < _NORM_MIN else "numbers that are not finite"
        message = f"{who} answered {fault} in {len(bad)} of {count} vectors, first in number {bad[0] + 1}"
        if trusted if count == 1 else len(bad) < count:
            raise TextRefused(message, bad[0])
        raise EmbedderMismatch(message)
    return [_scaled(row, norm) for row, norm in zip(rows, norms, strict=True)]


def _numbers(vector: Iterable[float], index: int, who: str) -> Vector:
    try:
        # What came as base64 is an array already.
        return vector.tolist() if isinstance(vector, array) else array("d", vector).tolist()
    except (TypeError, OverflowError):
        raise EmbedderMismatch(f"{who} answered vector number {index + 1} that is not a list of numbers") from None


def _scaled(row: Vector, norm: float) -> Vector:
    return row if abs(norm - 1) < _UNIT_TOLERANCE else [value / norm for value in row]


def _wrong_length(who: str, index: int, found: int, expected: int, *, known: bool) -> str:
    if known:
        return (
            f"{who} answered vectors of {found} numbers where {expected} are expected; "
            f"mend embed_model, or set embed_dimensions to {found} if the database was made for that length"
        )
    return f"{who} answered vectors of different lengths: {expected} numbers first, {found} in number {index + 1}"
