"""The size of requests follows what an embedder takes for a request and for its texts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from hermes_memory_pgvector.write.request_size import REQUEST_S, RequestSize

LONGEST_S = 10.0
TEXTS_MAX = 64


@dataclass
class Simulated:
    """An embedder, two requests of which run at a time, and texts of some lengths."""

    fixed_s: float
    char_s: float
    lengths: list[int]
    noise: float = 0.0
    size: RequestSize = field(default_factory=lambda: RequestSize(LONGEST_S))
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    took: list[tuple[int, float]] = field(default_factory=list)

    def send(self, count: int) -> None:
        """Send that many requests."""
        running = [self._request(), self._request()]
        for _ in range(count):
            chars = running.pop(0)
            seconds = (self.fixed_s + self.char_s * chars) * self.rng.uniform(1, 1 + self.noise)
            self.took.append((chars, seconds))
            self.size.answered(chars, seconds)
            running.append(self._request())

    def _request(self) -> int:
        """The characters of the next request: texts until it is full."""
        chars = texts = 0
        while texts < TEXTS_MAX and chars < self.size.chars:
            chars, texts = chars + self.rng.choice(self.lengths), texts + 1
        return chars

    @property
    def share_of_texts(self) -> float:
        """The share of the time of the last 40 requests that went into texts, or that no larger ones could save."""
        chars, seconds = (sum(each) for each in zip(*self.took[-40:], strict=True))
        largest = TEXTS_MAX * sum(self.lengths) / len(self.lengths)
        return (self.char_s + self.fixed_s / largest) * chars / seconds


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


@given(st.floats(0, 1.5), st.floats(1e-7, 1e-3), st.lists(st.integers(20, 2000), min_size=1, max_size=20))
def test_requests_do_not_take_long(fixed_s: float, char_s: float, lengths: list[int]) -> None:
    embedder = Simulated(fixed_s, char_s, lengths)
    embedder.send(80)
    # A request exceeds its size by its last text. One of twice that, and its last text, is sent to find out.
    last_text_s = char_s * max(lengths)
    assert max(seconds for _, seconds in embedder.took[-40:]) <= 2 * max(REQUEST_S, 4 * fixed_s) + 3 * last_text_s


def test_requests_of_the_most_texts_shrink_when_the_embedder_becomes_slow() -> None:
    embedder = Simulated(0.01, 1e-6, [1400])
    embedder.send(20)
    assert embedder.took[-1][0] == TEXTS_MAX * 1400
    embedder.char_s = 3e-5
    embedder.send(40)
    assert sum(seconds for _, seconds in embedder.took[-20:]) < 20 * 2 * REQUEST_S


def test_one_slow_request_changes_little() -> None:
    embedder = Simulated(0.02, 5e-5, [80, 300, 1000])
    embedder.size.answered(1900, 8.0)
    embedder.send(40)
    usual = embedder.size.chars
    embedder.size.answered(usual, 8.0)
    embedder.size.answered(usual // 2, 6.0)
    embedder.send(8)
    assert usual / 2 <= embedder.size.chars <= usual * 2


def test_a_request_without_an_answer_is_followed_by_one_text() -> None:
    size = RequestSize(LONGEST_S)
    size.unanswered(2000, 0.01)  # refused at once: its size is not at fault
    assert size.chars > 1
    size.unanswered(2000, 5.0)
    assert size.chars == 1


def test_an_embedder_with_no_time_for_two_texts_gets_one_at_a_time() -> None:
    size, given_up = RequestSize(LONGEST_S), 0
    for _ in range(200):
        if size.chars >= 800:
            given_up += 1
            size.unanswered(800, 5.0)
        else:
            size.answered(400, 0.4)
    assert given_up <= 200 / 8
