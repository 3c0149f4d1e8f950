"""Columns of many rows, packed into bytes by theme: each number would cost the driver an object. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def columns(
    themes: Sequence[tuple[Any, ...]], types: Sequence[str]
) -> tuple[list[tuple[str, int]], list[NDArray[Any]]]:
    """The themes and ids of the rows, and their columns as arrays of these types, of which the first has the ids.

    Each of `themes` is the name of a theme and, for each column, the big-endian numbers of its rows as bytes.
    """
    import numpy as np  # at the first recall: a host loads this module at its start

    width = len(types) + 1
    names, *packed = zip(*(theme[:width] for theme in themes), strict=True) if themes else ((),) * width
    arrays = [
        np.frombuffer(b"".join(column), f">{type}").astype(type) for column, type in zip(packed, types, strict=True)
    ]
    theme_of_row = [name for name, ids in zip(names, packed[0], strict=True) for _ in range(len(ids) // 8)]
    return list(zip(theme_of_row, arrays[0].tolist(), strict=True)), arrays


def raise_to_pieces(
    cosines: NDArray[np.float64], ids: NDArray[np.int64], themes: Sequence[tuple[int, bytes | None]]
) -> None:
    """Raise the cosine of each row to the highest of its pieces.

    Each of `themes` is the number of its rows, and the ids of rows with the cosines of their pieces.
    """
    import numpy as np

    start = 0
    for rows, packed in themes:
        end = start + rows
        if packed:
            pieces = np.frombuffer(packed, [("row", ">i8"), ("cosine", ">f8")])
            order = start + np.argsort(ids[start:end])
            places = order[np.searchsorted(ids[order], pieces["row"]).clip(max=rows - 1)]
            known = ids[places] == pieces["row"]
            np.fmax.at(cosines, places[known], pieces["cosine"][known])
        start = end


def bits_at(numbers: NDArray[np.int64], places: Sequence[int]) -> NDArray[np.bool_]:
    """The bits of each number at these places, 0 being the lowest."""
    import numpy as np

    return (numbers[:, np.newaxis] >> np.array(places, dtype=np.int64) & 1).astype(bool)
