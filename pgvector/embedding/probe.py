"""The short request that asks whether an embedder answers, and how long to wait for it."""

from __future__ import annotations

from .protocol import Embedder

TEXT = "Does the embedder answer?"
PROBE_S_MIN = 3.0


class Probe:
    """Asks an embedder for one short vector. For one thread at a time.

    The time limit begins with `PROBE_S_MIN` seconds and doubles with each failure, up to `longest_s`; then it begins
    again. So a model that loads slowly is waited for, and a hanging endpoint is noticed soon after it has recovered.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._limit_s = min(PROBE_S_MIN, longest_s)

    def ask(self, embedder: Embedder) -> None:
        """Return when the embedder has answered. Raises the errors of `embed_query`."""
        limit_s = self._limit_s
        self._limit_s = min(2 * limit_s if limit_s < self._longest_s else PROBE_S_MIN, self._longest_s)
        embedder.embed_query(TEXT, limit_s)
        self._limit_s = min(PROBE_S_MIN, self._longest_s)
