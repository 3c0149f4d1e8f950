from __future__ import annotations

import threading
import time

import pytest
from waiting import wait_for

from hermes_memory_pgvector.embedding.bundled.turns import Turns


@pytest.mark.parametrize("at_once", [1, 2])
def test_callers_that_return_at_once_alternate(at_once: int) -> None:
    turns, order = Turns(at_once), []
    start = threading.Barrier(at_once + 2)

    def caller(name: int) -> None:
        start.wait()
        for _ in range(20):
            assert turns.take(time.monotonic() + 60)
            order.append(name)
            time.sleep(0.002)
            turns.give_back()

    threads = [threading.Thread(target=caller, args=[name]) for name in range(at_once + 1)]
    for thread in threads:
        thread.start()
    start.wait()
    for thread in threads:
        thread.join(60)
    # Nobody waits for more than one turn of each other caller, apart from the first and last turns.
    for place in range(at_once + 1, len(order) - 3 * (at_once + 1)):
        assert len({*order[place : place + 2 * (at_once + 1)]}) == at_once + 1


def test_a_caller_whose_time_is_up_leaves_no_turn_taken() -> None:
    turns = Turns(1)
    assert turns.take(time.monotonic())
    assert not turns.take(time.monotonic() + 0.01)
    turns.give_back()
    assert turns.take(time.monotonic())


def test_the_turn_of_a_caller_that_gave_up_goes_to_the_next() -> None:
    turns, taken = Turns(1), threading.Event()
    assert turns.take(time.monotonic())
    impatient = threading.Thread(target=turns.take, args=[time.monotonic() + 0.05])
    impatient.start()
    wait_for(lambda: len(turns._waiting) == 1 or not impatient.is_alive())
    patient = threading.Thread(target=lambda: turns.take(time.monotonic() + 60) and taken.set())
    patient.start()
    impatient.join(60)
    assert not taken.is_set()
    turns.give_back()
    assert taken.wait(60)
    patient.join(60)
