"""The circuit breaker, with a simulated clock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import pytest

from hermes_memory_pgvector.embedding.breaker import (
    FAILURES_MAX,
    LIMITED_S_MAX,
    OPEN_S_FIRST,
    REFUSED_S,
    SPREAD,
    Breaker,
)
from hermes_memory_pgvector.embedding.vectors import TextRefused
from hermes_memory_pgvector.errors import Condition, EmbedderLimited, EmbedderMismatch, EmbedderUnavailable

LIMITED = EmbedderLimited("the endpoint answered 429")
DOWN = EmbedderUnavailable("the endpoint answered 503")
WRONG = EmbedderMismatch("the endpoint answered 401")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Scripted:
    """An embedder that raises `error` while there is one, and counts its calls."""

    model, dimensions = "scripted", 1

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


def open_breaker(inner: Scripted, clock: Clock) -> Breaker:
    breaker = Breaker(inner, clock)
    for _ in range(FAILURES_MAX):
        with pytest.raises(EmbedderUnavailable, match="503"):
            breaker.embed_query("x", 1)
    return breaker


def seconds_left(breaker: Breaker) -> float:
    with pytest.raises(EmbedderUnavailable, match="no request is sent for another") as caught:
        breaker.embed_query("x", 1)
    return float(str(caught.value).split()[6])


def test_a_closed_breaker_passes_calls_on() -> None:
    inner = Scripted()
    breaker = Breaker(inner)
    assert (breaker.model, breaker.dimensions) == ("scripted", 1)
    assert breaker.embed_passages(["a", "b"], 1) == [[1.0], [1.0]]
    assert breaker.embed_query("a", 1) == [1.0]
    breaker.close()
    assert inner.closed == 1


def test_an_open_breaker_fails_at_once_with_the_cause_and_the_seconds_left() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = open_breaker(inner, clock)
    with pytest.raises(EmbedderUnavailable, match=r"another 0\.5 s after: the endpoint answered 503"):
        breaker.embed_passages(["x"], 1)
    assert inner.calls == FAILURES_MAX


def test_a_success_between_failures_keeps_the_breaker_closed() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = Breaker(inner, clock)
    for error in (DOWN, DOWN, None, DOWN, DOWN, None, DOWN, DOWN):
        inner.error = error
        if error:
            with pytest.raises(EmbedderUnavailable):
                breaker.embed_query("x", 1)
        else:
            breaker.embed_query("x", 1)
    assert inner.calls == 8
    inner.error = None
    assert breaker.embed_query("x", 1) == [1.0]


def test_the_waiting_time_doubles_with_each_failed_trial_up_to_its_limit() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = open_breaker(inner, clock)
    waits = []
    for _ in range(7):
        waits.append(seconds_left(breaker))
        clock.now += waits[-1]
        with pytest.raises(EmbedderUnavailable, match="503"):
            breaker.embed_query("x", 1)
    assert waits == [0.5, 1, 2, 2.5, 2.5, 2.5, 2.5]


def test_a_successful_trial_closes_the_breaker_and_resets_the_waiting_time() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = open_breaker(inner, clock)
    clock.now += 1
    inner.error = None
    breaker.embed_query("x", 1)
    breaker.embed_query("x", 1)
    inner.error = DOWN
    for _ in range(FAILURES_MAX):
        with pytest.raises(EmbedderUnavailable, match="503"):
            breaker.embed_query("x", 1)
    assert seconds_left(breaker) == OPEN_S_FIRST


def test_a_refusal_opens_the_breaker_at_once_and_for_longer() -> None:
    inner, clock = Scripted(WRONG), Clock()
    breaker = Breaker(inner, clock)
    with pytest.raises(EmbedderMismatch):
        breaker.embed_query("x", 1)
    assert seconds_left(breaker) == REFUSED_S > OPEN_S_FIRST
    with pytest.raises(EmbedderUnavailable, match="401"):
        breaker.embed_query("x", 1)


@pytest.mark.parametrize("told_s", [7.0, 86_400.0])
def test_the_time_that_an_endpoint_asks_to_wait_is_waited_at_once_and_has_a_bound(told_s: float) -> None:
    inner, clock = Scripted(EmbedderLimited("the endpoint answered 429", told_s)), Clock()
    breaker = Breaker(inner, clock)
    with pytest.raises(EmbedderLimited, match="429"):
        breaker.embed_query("x", 1)
    wait_s = min(told_s, LIMITED_S_MAX)
    with pytest.raises(EmbedderLimited, match="no request is sent") as caught:
        breaker.embed_query("x", 1)
    assert wait_s <= caught.value.wait_s <= (1 + SPREAD) * wait_s
    assert inner.calls == 1
    clock.now += caught.value.wait_s
    inner.error = None
    assert breaker.embed_query("x", 1) == [1.0]
    inner.error = DOWN
    for _ in range(FAILURES_MAX):
        with pytest.raises(EmbedderUnavailable, match="503"):
            breaker.embed_query("x", 1)
    assert seconds_left(breaker) == OPEN_S_FIRST


def test_an_endpoint_that_takes_too_many_requests_for_some_of_them_is_asked_again_at_once() -> None:
    inner = Scripted(LIMITED)
    breaker = Breaker(inner, Clock())
    for _ in range(FAILURES_MAX):
        with pytest.raises(EmbedderLimited, match="answered 429"):
            breaker.embed_query("x", 1)
    assert inner.calls == FAILURES_MAX


class Limiter:
    """An endpoint that takes so many requests a minute, and counts those that it refuses, too."""

    model, dimensions = "limited", 1

    def __init__(self, clock: Clock, a_minute: int, retry_after_s: float) -> None:
        self.clock, self.a_minute, self.retry_after_s = clock, a_minute, retry_after_s
        self.seen: deque[float] = deque()
        self.answered = 0

    def embed_query(self, text: str, timeout_s: float) -> list[float]:
        self.seen.append(self.clock())
        while self.seen[0] <= self.clock() - 60:
            self.seen.popleft()
        if len(self.seen) > self.a_minute:
            raise EmbedderLimited("the endpoint answered 429", self.retry_after_s)
        self.answered += 1
        return [1.0]

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[list[float]]:
        return [self.embed_query(text, timeout_s) for text in texts]

    def close(self) -> None:
        pass


@pytest.mark.parametrize("retry_after_s", [0.0, 5.0])
def test_a_fleet_that_asks_for_too_much_does_not_keep_its_endpoint_shut(retry_after_s: float) -> None:
    clock = Clock()
    endpoint = Limiter(clock, a_minute=100, retry_after_s=retry_after_s)
    fleet = [Breaker(endpoint, clock) for _ in range(40)]
    for _ in range(20 * 60):
        for agent in fleet:
            with suppress(EmbedderUnavailable):
                agent.embed_query("x", 1)
        clock.now += 0.5
    # Ten minutes, after the first of which nothing was answered while each process tried every 2.5 s.
    assert endpoint.answered > 0.3 * 10 * endpoint.a_minute


def test_a_refused_text_does_not_open_the_breaker() -> None:
    inner = Scripted(TextRefused("not this one"))
    breaker = Breaker(inner)
    for _ in range(5):
        with pytest.raises(TextRefused):
            breaker.embed_query("x", 1)
    assert inner.calls == 5


def test_a_programming_error_in_a_trial_permits_another_trial() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = open_breaker(inner, clock)
    clock.now += 1
    inner.error = ValueError("an empty text")
    with pytest.raises(ValueError, match="empty"):
        breaker.embed_query("", 1)
    inner.error = None
    assert breaker.embed_query("x", 1) == [1.0]


def test_only_one_call_at_a_time_is_the_trial() -> None:
    inner, clock = Scripted(DOWN), Clock()
    breaker = open_breaker(inner, clock)
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


def test_the_condition_tells_since_when_calls_fail_until_one_succeeds() -> None:
    clock, inner = Clock(), Scripted()
    breaker = Breaker(inner, clock)
    assert breaker.condition == Condition()
    breaker.embed_query("x", 1)
    assert breaker.condition == Condition(works=True)
    inner.error = DOWN
    for _ in range(FAILURES_MAX + 1):
        with pytest.raises(EmbedderUnavailable):
            breaker.embed_query("x", 1)
    failing = breaker.condition
    assert failing.problem == "the endpoint answered 503"
    assert failing.since is not None
    clock.now += REFUSED_S
    inner.error = WRONG
    with pytest.raises(EmbedderMismatch):
        breaker.embed_query("x", 1)
    assert breaker.condition == Condition("the endpoint answered 401", failing.since)
    clock.now += REFUSED_S
    inner.error = None
    breaker.embed_query("x", 1)
    assert breaker.condition == Condition(works=True)
