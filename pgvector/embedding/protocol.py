"""What the inner rooms ask of the outer ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..model import Vector


class Embedder(Protocol):
    """Turns texts into vectors. Implementations are safe to call from several threads at once.

    Queries and passages are different calls because retrieval models embed them differently.
    """

    @property
    def model(self) -> str:
        """The model's name, as stored beside the vectors."""

    @property
    def dimensions(self) -> int | None:
        """The length of its vectors; None until the first answer when the model is not a known one."""

    @property
    def seconds_per_text(self) -> float:
        """A running estimate of the cost of one passage, in seconds."""

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        """Embed what is stored: one vector a text, in order.

        Raises EmbedderUnavailable (try again) or EmbedderMismatch (the answer is unusable).
        """

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        """Embed what is asked. Raises as `embed_passages` does."""

    def close(self) -> None:
        """Release connections; safe to call twice."""
