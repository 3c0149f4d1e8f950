"""The time limits of a recall: all of it, before a turn too, and the share of each step."""

from __future__ import annotations

import math
import time

from ..settings import Settings

# Shares of the budget: until the database is ready, until what was just written is stored, and for the embedding.
READY_SHARE = 0.5
FLUSH_SHARE = 0.2
EMBEDDING_SHARE = 0.6
# Share of the time left for what the host recorded of a context.
CONTEXT_SHARE = 0.25
# Share of the time left for the hot facts before a turn; they wait until the database is ready, too.
FACTS_SHARE = 0.5
# Share of the time left that a recall waits for its turn, while others use the connections.
TURN_SHARE = 0.7
# Share of the time left after which a recall that got its turn compares no vectors in large scopes: others wait, too.
PATIENCE_SHARE = 0.3
# Share of the time left for the re-ranker.
RERANKING_SHARE = 0.8
# Share of the time left for one search. It leaves some for the next search and for reading the hits.
SEARCH_SHARE = 0.6
# No step gets less than this, so a recall can end a little after its deadline, but never without an attempt.
STEP_S_MIN = 0.1
# The whole budget of a recall before a turn while the database does not answer: enough to notice its return.
DATABASE_AWAY_S_MAX = 0.3


class Deadline:
    """When the answer of a recall is due. A tool has `recall_budget_s`, a recall before a turn `before_turn`."""

    def __init__(self, budget_s: float) -> None:
        self._at = time.monotonic() + budget_s

    @classmethod
    def before_turn(cls, settings: Settings, *, database_away: bool) -> Deadline:
        """The deadline of a recall before a turn: `prefetch_budget_s`, or less while the database does not answer."""
        return cls(min(settings.prefetch_budget_s, DATABASE_AWAY_S_MAX if database_away else math.inf))

    @property
    def left_s(self) -> float:
        """Seconds until the answer is due, at least STEP_S_MIN."""
        return max(STEP_S_MIN, self._at - time.monotonic())

    @property
    def turn_s(self) -> float:
        """How long to wait for a connection that others use."""
        return TURN_SHARE * self.left_s

    @property
    def patience_s(self) -> float:
        """After how long a wait for a connection a recall hurries."""
        return PATIENCE_SHARE * self.left_s

    @property
    def context_s(self) -> float:
        """How long the host's record may be read."""
        return CONTEXT_SHARE * self.left_s

    @property
    def reranking_s(self) -> float:
        """How long the re-ranker may take."""
        return RERANKING_SHARE * self.left_s

    @property
    def facts_s(self) -> float:
        """How long the hot facts may take."""
        return FACTS_SHARE * self.left_s

    @property
    def search_s(self) -> float:
        """How long the next search may take."""
        return max(STEP_S_MIN, SEARCH_SHARE * self.left_s)


def ms_since(start: float) -> float:
    """The milliseconds since this monotonic time."""
    return round(1000 * (time.monotonic() - start), 1)
