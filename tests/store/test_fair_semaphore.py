"""Callers are admitted in the order of their arrival, and whoever leaves makes room for one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from waiting import wait_for

from hermes_memory_pgvector.errors import DatabaseUnavailable
from hermes_memory_pgvector.store.connection.fair_semaphore import FairSemaphore


def enter(semaphore: FairSemaphore, job: Callable[[], object], *, first: bool = False) -> threading.Thread:
    """Do a job inside, in a thread of its own."""

    def run() -> None:
        with semaphore.admitted(20, first=first):
            job()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_those_who_wait_are_admitted_in_the_order_of_their_arrival() -> None:
    semaphore, order, leave = FairSemaphore(1), list[int](), threading.Event()
    inside = enter(semaphore, lambda: leave.wait(20))
    wait_for(lambda: semaphore._free == 0)
    waiting = []
    for number in range(30):
        waiting.append(enter(semaphore, lambda number=number: order.append(number)))  # type: ignore[misc]
        wait_for(lambda number=number: len(semaphore._line) == number + 1)
    leave.set()
    for thread in (inside, *waiting):
        thread.join(20)
    assert order == list(range(30))
    assert semaphore._free == 1


def test_who_goes_first_is_admitted_before_all_that_wait() -> None:
    semaphore, order, leave = FairSemaphore(1), list[str](), threading.Event()
    threads = [enter(semaphore, lambda: leave.wait(20))]
    wait_for(lambda: semaphore._free == 0)
    for number, name in enumerate(("recall", "recall", "writer")):
        threads.append(enter(semaphore, lambda name=name: order.append(name), first=name == "writer"))  # type: ignore[misc]
        wait_for(lambda number=number: len(semaphore._line) == number + 1)
    leave.set()
    for thread in threads:
        thread.join(20)
    assert order == ["writer", "recall", "recall"]


def test_who_waits_too_long_leaves_the_line_and_takes_no_place() -> None:
    semaphore, leave = FairSemaphore(1), threading.Event()
    inside = enter(semaphore, lambda: leave.wait(20))
    wait_for(lambda: semaphore._free == 0)
    with pytest.raises(DatabaseUnavailable, match="in use for 0\\.0 s; raise pool_max"), semaphore.admitted(0.01):
        pass
    assert not semaphore._line
    leave.set()
    inside.join(20)
    with semaphore.admitted(0):
        assert semaphore._free == 0
    assert semaphore._free == 1


def test_no_place_is_lost_when_waiting_ends_as_a_place_becomes_free() -> None:
    semaphore, refused = FairSemaphore(3), list[int]()

    def use(number: int) -> None:
        for _ in range(50):
            try:
                with semaphore.admitted(0.001 * (number % 4)):
                    time.sleep(0.001)
            except DatabaseUnavailable:
                refused.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert refused
    assert semaphore._free == 3
    assert not semaphore._line


def test_a_place_is_free_again_after_an_error_in_the_block() -> None:
    semaphore = FairSemaphore(1)
    with pytest.raises(ValueError, match="x"), semaphore.admitted(1):
        raise ValueError("x")
    assert semaphore._free == 1
