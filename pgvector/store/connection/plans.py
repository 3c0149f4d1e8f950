"""Plans of statements that a connection keeps from one transaction to the next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import psycopg
from psycopg.pq import TransactionStatus

from ..queries import QUERIES
from .socket_timeouts import TimedConnection

# A kept plan goes by indexes alone: for a table of a few rows the planner would rather read all of it, and until the
# next ANALYZE the plan would stay while the table grows.
KEPT_PLANS: dict[str, LiteralString] = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
KEPT_PLANS_MAX = 32


def allow_plans(connection: TimedConnection) -> None:
    """Let a new connection keep plans if nothing forbids it."""
    row = connection.execute(QUERIES["may_keep_plans"]).fetchone()
    connection.keeps_plans = (
        row is not None and row["process"] == connection.info.backend_pid and not row["distributed"]
    )
    connection.prepared_max = KEPT_PLANS_MAX


@contextmanager
def keeping_plans(connection: TimedConnection) -> Iterator[None]:
    """Prepare each statement of the block, which is a transaction, at its first use, if the connection may keep plans.

    They are planned by the settings of that moment, which should be KEPT_PLANS.
    """
    if not connection.keeps_plans:
        yield
        return
    try:
        # Elsewhere the threshold is None: what the driver prepares after some uses is planned otherwise from then on.
        connection.prepare_threshold = 0
        yield
    finally:
        connection.prepare_threshold = None
        if connection.info.transaction_status == TransactionStatus.INERROR:
            _forget_plans(connection)


def _forget_plans(connection: TimedConnection) -> None:
    """End a transaction that has failed. A statement that failed at its first use stays, and the driver forgets it."""
    with contextlib.suppress(psycopg.Error):
        connection.rollback()
        connection.execute("deallocate all")
