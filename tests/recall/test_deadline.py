from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.recall import deadline
from hermes_memory_pgvector.recall.deadline import Deadline


@given(st.floats(0.1, 60), st.floats(0, 120))
def test_a_search_gets_a_share_of_the_time_left_and_never_less_than_a_step(budget_s: float, waited_s: float) -> None:
    now = 100.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deadline.time, "monotonic", lambda: now)
        due = Deadline(budget_s)
        now += waited_s
        assert due.left_s == pytest.approx(max(deadline.STEP_S_MIN, budget_s - waited_s))
        assert deadline.STEP_S_MIN <= due.search_s <= due.left_s


def test_waiting_for_the_database_and_for_the_writer_leaves_time_to_search() -> None:
    assert deadline.READY_SHARE + deadline.FLUSH_SHARE < 1
    assert deadline.EMBEDDING_SHARE < 1
