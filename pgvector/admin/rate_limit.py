"""What a command does while its vectors do not come: it waits for an endpoint with a rate limit, else it ends."""

from __future__ import annotations

from ..embedding.protocol import Embedder
from ..errors import EmbedderMismatch, EmbedderUnavailable
from ..write.backfill import REFUSED_MAX, Backfill
from .console import Console, counted

WAIT_S_MAX = 600.0


def waiting(vectors: Backfill, embedder: Embedder, console: Console, waited: bool) -> bool:
    """Whether a command waits for an endpoint that takes no more requests for now; it says so if it has not `waited`.

    Raises EmbedderUnavailable when vectors do not come for another reason, or not for WAIT_S_MAX, and
    EmbedderMismatch when the embedder refuses too many rows.
    """
    if len(vectors.refused) >= REFUSED_MAX:
        raise EmbedderMismatch(f"{embedder.model} refused {REFUSED_MAX} rows; see the log of the endpoint")
    if not vectors.problem:
        return False
    if vectors.limited_s is None or vectors.limited_s >= WAIT_S_MAX:
        done = counted(vectors.rows_done, "row")
        raise EmbedderUnavailable(f"{vectors.problem}; {done} done, run the command again to continue")
    if not waited:
        console.say(f"waiting: {vectors.problem}")
    return True
