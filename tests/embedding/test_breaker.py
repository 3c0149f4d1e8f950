"""The breaker, on a clock that stands still until it is moved."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from hermes_memory_pgvector.embedding.breaker import Breaker
from hermes_memory_pgvector.embedding.pace import Pace
from hermes_memory_pgvector.embedding.vectors import TextRefused
from hermes_memory_pgvector.errors import EmbedderMismatch, EmbedderUnavailable

DOWN = EmbedderUnavailable("the endpoint answered 503")
WRONG = EmbedderMismatch("the endpoint answered 401")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Scripted:
    """An embedder that raises `error` while there is one, and counts its calls."""

    model, dimensions, seconds_per_text = "scripted", 1, 0.5

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls = 0
        self.closed = 0

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[list[float]]:
        self.calls += 1
        if self.error:
            raise self.error
        return [[1.0]] * len(texts)

    def embed_query(self, text: str, timeout_s: float) -> list[float]:
        return self.embed_passages([text], timeout_s)[0]

    def close(self) -> None:
        self.closed += 1


def opened(inner: Scripted, clock: Clock) -> Breaker:
    breaker = Breaker(inner, failures_max=2, clock=clock)
    for _ in range(2):
        with pytest.raises(EmbedderUnavailable, match="503"):
            breaker.embed_query("x", 1)
    return breaker


def seconds_left(breaker: Breaker) -> float:
    with pytest.raises(EmbedderUnavailable, match="no request is sent for another") as caught:
        breaker.embed_query("x", 1)
    return float(str(caught.value).split()[6])


def test_it_is_transparent_while_all_is_well() -> None:
    inner = Scripted()
    breaker = Breaker(inner)
    assert breaker.embed_passages(["a", "b"], 1) == [[1.0], [1.0]]
    assert breaker.embed_query("a", 1) == [1.0]
    assert (breaker.model, breaker.dimensions, breaker.seconds_per_text) == ("scripted", 1, 0.5)
    breaker.close()
    assert inner.closed == 1


def test_open_it_fails_at_once_telling_the_cause_and_the_seconds_left() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = opened(inner, clock)
    with pytest.raises(EmbedderUnavailable, match=r"another 1\.0 s after: the endpoint answered 503"):
        breaker.embed_passages(["x"], 1)
    assert inner.calls == 2


def test_a_success_between_failures_keeps_it_closed() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = Breaker(inner, failures_max=2, clock=clock)
    for error in (DOWN, None, DOWN, None, DOWN):
        inner.error = error
        if error:
            with pytest.raises(EmbedderUnavailable):
                breaker.embed_query("x", 1)
        else:
            breaker.embed_query("x", 1)
    assert inner.calls == 5
    inner.error = None
    assert breaker.embed_query("x", 1) == [1.0]


def test_the_wait_doubles_with_every_failed_trial_up_to_its_cap() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = opened(inner, clock)
    waits = []
    for _ in range(7):
        waits.append(seconds_left(breaker))
        clock.now += waits[-1]
        with pytest.raises(EmbedderUnavailable, match="503"):
            breaker.embed_query("x", 1)
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_a_trial_that_works_closes_it_and_forgets_the_waits() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = opened(inner, clock)
    clock.now += 1
    inner.error = None
    breaker.embed_query("x", 1)
    breaker.embed_query("x", 1)
    inner.error = DOWN
    for _ in range(2):
        with pytest.raises(EmbedderUnavailable, match="503"):
            breaker.embed_query("x", 1)
    assert seconds_left(breaker) == 1.0


def test_a_refusal_opens_it_for_longer_at_once() -> None:
    inner, clock = Scripted(WRONG), Clock()
    breaker = Breaker(inner, clock=clock)
    with pytest.raises(EmbedderMismatch):
        breaker.embed_query("x", 1)
    assert seconds_left(breaker) == 30.0
    with pytest.raises(EmbedderUnavailable, match="401"):
        breaker.embed_query("x", 1)


def test_one_refused_text_does_not_open_it() -> None:
    inner = Scripted(TextRefused("not this one"))
    breaker = Breaker(inner, failures_max=1)
    for _ in range(5):
        with pytest.raises(TextRefused):
            breaker.embed_query("x", 1)
    assert inner.calls == 5


def test_a_programming_error_in_the_trial_leaves_room_for_another_trial() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = opened(inner, clock)
    clock.now += 1
    inner.error = ValueError("an empty text")
    with pytest.raises(ValueError, match="empty"):
        breaker.embed_query("", 1)
    inner.error = None
    assert breaker.embed_query("x", 1) == [1.0]


def test_only_one_call_is_the_trial() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = opened(inner, clock)
    clock.now += 1
    entered, leave = threading.Event(), threading.Event()

    def slow(text: str, timeout_s: float) -> list[float]:
        entered.set()
        leave.wait(10)
        return [1.0]

    inner.embed_query = slow  # type: ignore[method-assign]
    trial = threading.Thread(target=breaker.embed_query, args=("x", 1))
    trial.start()
    try:
        assert entered.wait(10)
        with pytest.raises(EmbedderUnavailable, match="a trial is running"):
            breaker.embed_passages(["x"], 1)
    finally:
        leave.set()
        trial.join(10)
    inner.error = None
    assert breaker.embed_passages(["x"], 1) == [[1.0]]


def test_the_pace_moves_towards_what_is_observed_and_not_past_it() -> None:
    pace = Pace(0.1)
    for _ in range(50):
        pace.observe(0.5)
    assert 0.4 < pace.seconds_per_text <= 0.5


def test_a_quick_failure_does_not_make_the_embedder_look_fast() -> None:
    pace = Pace(5.0)
    with pytest.raises(EmbedderUnavailable), pace.measured(64):
        raise DOWN
    assert pace.seconds_per_text == 5.0
