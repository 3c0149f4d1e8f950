"""Preparation of the texts for an embedder and validation of the vectors that it answers."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from ..errors import EmbedderMismatch
from ..model import Vector

# Vectors whose length differs from 1 by less than this are not scaled.
_UNIT_TOLERANCE = 1e-3
# A vector with a smaller norm is denormalized: its numbers have too few digits to be scaled.
_NORM_MIN = sys.float_info.min


class TextRefused(EmbedderMismatch):
    """The embedder works, but cannot embed one text of the call, not even its beginning.

    `index` is the position of the text in the call. Retry the call without this text.
    """

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


def prepared(text: str, chars_max: int) -> str:
    """The text as valid UTF-8, without NUL, lone surrogates and surrounding whitespace, cut to `chars_max` characters.

    Raises ValueError for an empty text: endpoints answer it with zeros.
    """
    clean = text.replace("\0", " ").strip()[:chars_max].encode("utf-8", "replace").decode("utf-8").strip()
    if not clean:
        raise ValueError("an empty text cannot be embedded; leave it out")
    return clean


def truncated(text: str, bytes_max: int) -> str:
    """The longest beginning of the text that has at most `bytes_max` UTF-8 bytes.

    The number of bytes predicts the number of tokens better than the number of characters does: a Chinese character is
    three bytes and about one token, an English word is five bytes and about one token.
    """
    return text.encode("utf-8")[:bytes_max].decode("utf-8", "ignore")


def validated(
    rows: Sequence[Vector], *, count: int, dimensions: int | None, source: str, trusted: bool = False
) -> list[Vector]:
    """The vectors of an answer, scaled to unit length.

    There must be `count` vectors of `dimensions` finite numbers, not all zero. With `dimensions` None their lengths
    must be equal. `source` names the embedder in error messages. Raises EmbedderMismatch. Raises TextRefused instead
    if only some vectors are zero or not finite, or if the only one is and the embedder is `trusted` because it has
    answered before.
    """
    if len(rows) != count:
        raise EmbedderMismatch(f"{source} answered {len(rows)} vectors to {count} texts")
    expected = dimensions or len(rows[0])
    for index, row in enumerate(rows):
        if row and len(row) == expected:
            continue
        if dimensions:
            raise EmbedderMismatch(
                f"{source} answered vectors of {len(row)} numbers where {dimensions} are expected; correct "
                f"embed_model, or set embed_dimensions to {len(row)} if the database was made for that length"
            )
        raise EmbedderMismatch(
            f"{source} answered vectors of different lengths: {expected} numbers first, {len(row)} in number "
            f"{index + 1}"
        )
    norms = [math.hypot(*row) for row in rows]
    bad = [index for index, norm in enumerate(norms) if not _NORM_MIN <= norm < math.inf]
    if bad:
        fault = "only zeros" if norms[bad[0]] < _NORM_MIN else "numbers that are not finite"
        message = f"{source} answered {fault} in {len(bad)} of {count} vectors, first in number {bad[0] + 1}"
        if len(bad) < count or (count == 1 and trusted):
            raise TextRefused(message, bad[0])
        raise EmbedderMismatch(message)
    return [
        row if abs(norm - 1) < _UNIT_TOLERANCE else [value / norm for value in row]
        for row, norm in zip(rows, norms, strict=True)
    ]
