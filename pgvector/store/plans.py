"""Plans of statements that a connection keeps from one transaction to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

from .patience import PatientConnection
from .queries import QUERIES

# A plan that is kept looks each row up by an index, also where statistics are missing or of a time when there were few
# rows: for a small table the planner prefers to read all of it, and nothing tells it that the table has grown.
KEPT_PLANS: dict[str, LiteralString] = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
KEPT_PLANS_MAX = 32


def find_out(connection: PatientConnection) -> None:
    """Find out whether a new connection may keep plans."""
    row = connection.execute(QUERIES["session"]).fetchone() or {}
    connection.keeps_plans = row["process"] == connection.info.backend_pid and not row["distributed"]
    connection.prepared_max = KEPT_PLANS_MAX


@contextmanager
def keeping_plans(connection: PatientConnection) -> Iterator[None]:
    """Prepare each statement of the block at its first use, if the connection may keep plans.

    They are planned by the settings of that moment, which should be KEPT_PLANS.
    """
    try:
        # Outside of the block never: the driver would prepare what has been used some times, and the plan flip then.
        connection.prepare_threshold = 0 if connection.keeps_plans else None
        yield
    except BaseException:
        # A statement whose first use fails is one that the server keeps and the driver forgets.
        connection.close()
        raise
    finally:
        connection.prepare_threshold = None
