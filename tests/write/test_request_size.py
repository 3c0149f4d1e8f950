"""The size of requests follows what an embedder takes for a request and for its texts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hermes_memory_pgvector.write.request_size import REQUEST_S, RequestSize, Sent

LONGEST_S = 10.0
TEXTS_MAX = 64


@dataclass
class Simulated:
    """An embedder, two requests to which run at a time, and texts of some lengths.

    With `serial` it works on one request at a time. The fixed time is `latency` of `fixed_s`.
    """

    fixed_s: float
    char_s: float
    lengths: list[int]
    noise: float = 0.0
    serial: bool = False
    latency: tuple[float, float] = (1.0, 1.0)
    size: RequestSize = field(default_factory=lambda: RequestSize(LONGEST_S))
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    took: list[tuple[int, float]] = field(default_factory=list)

    def send(self, count: int) -> None:
        """Send that many requests."""
        running = [self._request(0)]
        running.append(self._request(running[0].chars))
        for _ in range(count):
            sent = running.pop(0)
            work = self.char_s * (sent.running if self.serial else sent.chars)
            fixed_s = self.fixed_s * self.rng.uniform(*self.latency)
            seconds = (fixed_s + work) * self.rng.uniform(1, 1 + self.noise)
            self.took.append((sent.chars, seconds))
            self.size.answered(sent, seconds)
            running.append(self._request(running[0].chars))

    def _request(self, running: int) -> Sent:
        """The next request, beside one that runs: texts until it is full."""
        chars = texts = 0
        while texts < TEXTS_MAX and chars < self.size.chars:
            chars, texts = chars + self.rng.choice(self.lengths), texts + 1
        return Sent(chars, texts, running + chars)

    @property
    def share_of_texts(self) -> float:
        """The share of the time of the last 40 requests that went into texts, or that no larger ones could save."""
        chars, seconds = (sum(each) for each in zip(*self.took[-40:], strict=True))
        largest = TEXTS_MAX * sum(self.lengths) / len(self.lengths)
        return (self.char_s + self.fixed_s / largest) * chars / seconds


@settings(derandomize=True, deadline=None)
@given(
    st.floats(0, 1.5), st.floats(1e-7, 1e-3), st.lists(st.integers(20, 2000), min_size=1, max_size=20),
    st.floats(0, 0.5),
)  # fmt: skip
@example(0.3, 5e-6, [100], 0.0)
@example(0.6, 5e-6, [1401], 0.0)
@example(1.5, 5e-6, [20, 1401], 0.2)
def test_little_time_is_lost_to_the_fixed_time_of_requests(
    fixed_s: float, char_s: float, lengths: list[int], noise: float
) -> None:
    embedder = Simulated(fixed_s, char_s, lengths, noise)
    embedder.send(80)
    assert embedder.share_of_texts > 0.4


@settings(derandomize=True, deadline=None)
@given(st.floats(0, 1.5), st.floats(1e-7, 1e-3), st.lists(st.integers(20, 2000), min_size=1, max_size=20))
def test_requests_do_not_take_long(fixed_s: float, char_s: float, lengths: list[int]) -> None:
    embedder = Simulated(fixed_s, char_s, lengths)
    embedder.send(80)
    # A request exceeds its size by its last text. One of twice that, and its last text, is sent to find out.
    last_text_s = char_s * max(lengths)
    # The fixed time is an estimate, so now and then one takes longer, but never longer than it may.
    times = sorted(seconds for _, seconds in embedder.took)
    assert times[-1] <= max(LONGEST_S, fixed_s + 2000 * char_s) + last_text_s
    times = sorted(seconds for _, seconds in embedder.took[-40:])
    assert times[36] <= 2 * max(REQUEST_S, 4 * fixed_s) + 3 * last_text_s


def test_requests_of_the_most_texts_shrink_when_the_embedder_becomes_slow() -> None:
    embedder = Simulated(0.01, 1e-6, [1400])
    embedder.send(20)
    assert embedder.took[-1][0] == TEXTS_MAX * 1400
    embedder.char_s = 3e-5
    embedder.send(40)
    assert sum(seconds for _, seconds in embedder.took[-20:]) < 20 * 2 * REQUEST_S


def test_an_embedder_that_works_on_one_request_at_a_time_gets_no_longer_ones() -> None:
    embedder = Simulated(0.005, 6e-4, [20, 60, 150, 400, 1000, 2000], serial=True)
    embedder.send(300)
    assert sorted(seconds for _, seconds in embedder.took[-200:])[180] < 2 * (REQUEST_S + 6e-4 * 2000)


@pytest.mark.parametrize("lengths", [[90, 120, 200, 350], [300], [1400]])
def test_latencies_that_differ_much_leave_requests_large(lengths: list[int]) -> None:
    embedder = Simulated(1.0, 1e-6, lengths, latency=(0.1, 2.0))
    embedder.send(200)
    shares = []
    for _ in range(10):
        embedder.send(40)
        shares.append(embedder.share_of_texts)
    assert sorted(shares)[5] > 0.5


def test_one_slow_request_changes_little() -> None:
    embedder = Simulated(0.02, 5e-5, [80, 300, 1000])
    embedder.size.answered(Sent(1900, 4, 3800), 8.0)
    embedder.send(40)
    usual = embedder.size.chars
    embedder.size.answered(Sent(usual, 4, 2 * usual), 8.0)
    embedder.size.answered(Sent(usual // 2, 4, 2 * usual), 6.0)
    embedder.send(8)
    assert usual / 2 <= embedder.size.chars <= usual * 2


def test_requests_that_were_sent_before_the_size_changed_do_not_reduce_it_again() -> None:
    size = RequestSize(LONGEST_S)
    for _ in range(2):
        size.answered(Sent(2000, 10, 4000), 3.0)
    assert size.chars == 1000


def test_a_request_without_an_answer_in_time_is_followed_by_one_text() -> None:
    size = RequestSize(LONGEST_S)
    size.unanswered(Sent(2000, 10, 2000), 0.01, timed_out=False)  # refused at once: its size is not at fault
    assert size.chars == 2000
    size.unanswered(Sent(2000, 10, 2000), 0.7, timed_out=False)  # a limit of requests, or of a proxy's time
    assert size.chars == 1000
    size.unanswered(Sent(2000, 10, 2000), 5.0, timed_out=True)
    assert size.chars == 1


def test_an_embedder_with_no_time_for_two_texts_gets_one_at_a_time() -> None:
    size, given_up = RequestSize(LONGEST_S), 0
    for _ in range(200):
        if size.chars > 400:
            given_up += 1
            size.unanswered(Sent(800, 2, 1200), 5.0, timed_out=True)
        else:
            size.answered(Sent(400, 1, 800), 0.4)
    assert given_up <= 200 / 8
