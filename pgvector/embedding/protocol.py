"""The interface of all embedders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..model import Vector


class Embedder(Protocol):
    """Turns texts into vectors. Implementations are safe for any thread.

    Queries and passages have separate methods because retrieval models embed them differently.
    """

    @property
    def model(self) -> str:
        """The model's name, as stored with the vectors."""

    @property
    def dimensions(self) -> int | None:
        """The length of the vectors; None for an unknown model until its first answer."""

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        """The unit vectors of texts to store, one for each text, in order.

        Raises EmbedderUnavailable (a retry may help) or EmbedderMismatch (the answer cannot be used).
        """

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        """The unit vector of a query. Raises the same errors as `embed_passages`."""

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
