"""Texts on their way to the embedder: none is lost or mixed up, and the size of the requests follows the embedder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_memory_pgvector.embedding import probe
from hermes_memory_pgvector.embedding.vectors import TextRefused
from hermes_memory_pgvector.errors import EmbedderFailed, EmbedderMismatch, EmbedderUnavailable
from hermes_memory_pgvector.model import Vector
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.write import embedding_queue, request_size
from hermes_memory_pgvector.write.embedding_queue import REQUESTS_MAX, EmbeddingQueue


class Scripted:
    """An embedder whose vector of a text is its length. `answer` may replace what it does with a request."""

    model, dimensions = "scripted", 1

    def __init__(self, answer: Callable[[Sequence[str]], None] = lambda _: None) -> None:
        self.answer = answer
        self.requests: list[list[str]] = []
        self.probes: list[float] = []
        self.away = False
        self.together = self.together_max = 0
        self._lock = threading.Lock()

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        with self._lock:
            self.requests.append(list(texts))
            self.together += 1
            self.together_max = max(self.together, self.together_max)
        try:
            if self.away:
                raise EmbedderUnavailable("the endpoint is away")
            self.answer(texts)
            return [[float(len(text))] for text in texts]
        finally:
            with self._lock:
                self.together -= 1

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        self.probes.append(timeout_s)
        if self.away:
            raise EmbedderUnavailable("the endpoint is away")
        return [1.0]

    def close(self) -> None:
        pass


def made(**changed: object) -> EmbeddingQueue:
    return EmbeddingQueue(Settings(**changed), lambda: None)  # type: ignore[arg-type]


def settled(futures: Sequence[Future[Vector]]) -> list[Vector | BaseException]:
    assert not wait(futures, timeout=20).not_done
    return [future.exception() or future.result() for future in futures]


def refuse(*bad: str) -> Callable[[Sequence[str]], None]:
    def answer(texts: Sequence[str]) -> None:
        for index, text in enumerate(texts):
            if text in bad:
                raise TextRefused("this text is refused", index)

    return answer


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.text(min_size=1, max_size=3000), max_size=20), max_size=8))
def test_every_text_gets_its_own_vector(calls: list[list[str]]) -> None:
    queue, embedder = made(embed_batch_max=4), Scripted()
    futures = [
        (text, future) for texts in calls for text, future in zip(texts, queue.submit(embedder, texts), strict=True)
    ]
    assert settled([future for _, future in futures]) == [[float(len(text))] for text, _ in futures]
    assert all(0 < len(request) <= 4 for request in embedder.requests)
    assert embedder.together_max <= REQUESTS_MAX


def test_two_requests_run_at_a_time() -> None:
    both = threading.Barrier(REQUESTS_MAX)
    embedder = Scripted(lambda _: both.wait(10) and None)
    queue = made(embed_batch_max=2)
    assert all(isinstance(each, list) for each in settled(queue.submit(embedder, [f"text {n}" for n in range(8)])))
    assert embedder.together_max == REQUESTS_MAX


def test_requests_grow_while_the_embedder_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_size, "REQUEST_S", 5.0)
    embedder, text = Scripted(), "x" * request_size.CHARS_FIRST
    settled(made().submit(embedder, [text] * 40))
    sizes = list(map(len, embedder.requests))
    assert sizes[0] == 1
    assert max(sizes) >= 8


def test_requests_shrink_while_the_embedder_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_size, "REQUEST_S", 0.001)
    clock = [0.0]
    # What the machine does meanwhile, and which of two requests comes first, would count as the fixed time of one.
    monkeypatch.setattr(embedding_queue, "REQUESTS_MAX", 1)
    monkeypatch.setattr(embedding_queue, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def answer(texts: Sequence[str]) -> None:
        clock[0] += 0.02 * len(texts)

    embedder, text = Scripted(answer), "x" * 100
    settled(made().submit(embedder, [text] * 60))
    sizes = list(map(len, embedder.requests))
    assert sizes[0] == request_size.CHARS_FIRST / 100
    assert min(sizes[-5:]) == 1


def test_a_far_embedder_gets_large_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_size, "REQUEST_S", 0.01)
    embedder = Scripted(lambda _: time.sleep(0.05))
    texts = ["x" * 100, "x" * 300] * 150
    settled(made().submit(embedder, texts))
    assert len(embedder.requests) < 40
    assert max(map(len, embedder.requests)) == Settings().embed_batch_max


def test_short_texts_go_one_by_one_to_an_embedder_that_has_no_time_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_size, "REQUEST_S", 0.001)
    monkeypatch.setattr(embedding_queue, "TIMEOUT_S_FIRST", 0.01)

    class Slow(Scripted):
        def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
            time.sleep(0.002 if len(texts) == 1 else timeout_s)
            if len(texts) > 1:
                raise EmbedderUnavailable("no answer within the time limit")
            return super().embed_passages(texts, timeout_s)

    queue, texts = made(), ["a short text"] * 40
    for _ in range(20):
        found = settled(queue.submit(Slow(), texts))
        texts = [text for text, each in zip(texts, found, strict=True) if isinstance(each, BaseException)]
    assert not texts


def test_a_refused_text_fails_alone() -> None:
    texts = [f"text {number}" for number in range(30)]
    embedder = Scripted(refuse(texts[3], texts[17]))
    found = settled(made().submit(embedder, texts))
    refused = [text for text, each in zip(texts, found, strict=True) if isinstance(each, BaseException)]
    assert refused == [texts[3], texts[17]]
    assert all(isinstance(each, TextRefused) for each in found if isinstance(each, BaseException))


def test_a_refused_request_is_tried_in_halves() -> None:
    def answer(texts: Sequence[str]) -> None:
        if "bad" in texts:
            raise EmbedderMismatch("something in it is refused")

    found = settled(made().submit(Scripted(answer), ["a", "b", "bad", "c", "d"]))
    assert [isinstance(each, EmbedderMismatch) for each in found] == [False, False, True, False, False]


def test_a_text_for_which_the_embedder_fails_does_not_hold_up_the_others() -> None:
    def answer(texts: Sequence[str]) -> None:
        if "bad" in texts:
            raise EmbedderFailed("the endpoint answered 500")

    found = settled(made().submit(Scripted(answer), ["a", "b", "bad", "c", "d"]))
    assert [isinstance(each, TextRefused) for each in found] == [False, False, True, False, False]


def test_texts_wait_for_an_embedder_that_fails_for_all_of_them() -> None:
    def answer(texts: Sequence[str]) -> None:
        embedder.away = True
        raise EmbedderFailed("the endpoint answered 500")

    embedder = Scripted(answer)
    found = settled(made().submit(embedder, ["a", "b"]))
    assert {type(each) for each in found} == {EmbedderUnavailable}, "a retry may help; the texts are not at fault"


def test_texts_wait_for_an_embedder_that_refuses_everything() -> None:
    def answer(texts: Sequence[str]) -> None:
        embedder.away = True
        raise EmbedderMismatch("vectors of 3 numbers")

    embedder = Scripted(answer)
    found = settled(made().submit(embedder, ["a", "b"]))
    assert all(isinstance(each, EmbedderUnavailable) for each in found), "a retry may help; the texts are not at fault"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_texts_that_were_refused_just_before_the_embedder_worked_again_are_not_at_fault(count: int) -> None:
    def answer(texts: Sequence[str]) -> None:
        if not embedder.probes:
            raise TextRefused("the endpoint answered 400", 0)

    embedder, texts = Scripted(answer), [f"text {number}" for number in range(count)]
    assert settled(made().submit(embedder, texts)) == [[float(len(text))] for text in texts]


def test_after_a_failure_a_probe_goes_before_the_next_request() -> None:
    queue, embedder = made(), Scripted()
    embedder.away = True
    assert all(isinstance(each, EmbedderUnavailable) for each in settled(queue.submit(embedder, ["a"] * 500)))
    asked = len(embedder.requests)
    assert asked <= REQUESTS_MAX
    assert all(isinstance(each, EmbedderUnavailable) for each in settled(queue.submit(embedder, ["b"])))
    assert (len(embedder.requests), len(embedder.probes)) == (asked, 1)
    embedder.away = False
    assert settled(queue.submit(embedder, ["c"])) == [[1.0]]
    assert (len(embedder.requests), len(embedder.probes)) == (asked + 1, 2)


def test_one_probe_at_a_time_asks_whether_the_embedder_is_back() -> None:
    class Slow(Scripted):
        def embed_query(self, text: str, timeout_s: float) -> Vector:
            time.sleep(0.05)
            return super().embed_query(text, timeout_s)

    queue, embedder = made(), Slow()
    embedder.away = True
    for _ in range(5):
        settled(queue.submit(embedder, ["a"] * 200))
    assert embedder.probes == [3, 6, 12, 20]
    embedder.away = False
    assert settled(queue.submit(embedder, ["a"] * 200)) == [[1.0]] * 200


def test_a_request_after_a_probe_has_the_time_that_the_probe_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_queue, "TIMEOUT_S_FIRST", 0.1)

    class Slow(Scripted):
        def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
            if timeout_s < 0.2:
                raise EmbedderUnavailable("no answer within the time limit")
            return super().embed_passages(texts, timeout_s)

        def embed_query(self, text: str, timeout_s: float) -> Vector:
            time.sleep(0.2)
            return super().embed_query(text, timeout_s)

    queue, embedder = made(), Slow()
    assert isinstance(settled(queue.submit(embedder, ["a"]))[0], EmbedderUnavailable)
    assert settled(queue.submit(embedder, ["a"])) == [[1.0]]


def test_an_unexpected_error_fails_the_texts_and_not_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    def answer(texts: Sequence[str]) -> None:
        raise MemoryError("secret text")

    queue = made()
    found = settled(queue.submit(Scripted(answer), ["a", "b"]))
    assert all(isinstance(each, EmbedderUnavailable) for each in found)
    assert "secret text" not in caplog.text + "".join(map(str, found))
    assert settled(queue.submit(Scripted(), ["c"])) == [[1.0]]


def test_an_unexpected_error_in_one_half_of_a_request_fails_the_other_half_too() -> None:
    def answer(texts: Sequence[str]) -> None:
        raise EmbedderMismatch("something in it is refused") if len(texts) > 2 else MemoryError

    queue = made()
    found = settled(queue.submit(Scripted(answer), ["a", "b", "c", "d"]))
    assert all(isinstance(each, EmbedderUnavailable) for each in found)
    assert settled(queue.submit(Scripted(), ["e"])) == [[1.0]]


def test_each_text_is_sent_to_the_embedder_it_was_submitted_for() -> None:
    begun, release = threading.Event(), threading.Event()

    def answer(texts: Sequence[str]) -> None:
        begun.set()
        release.wait(20)

    queue, first, second = made(), Scripted(answer), Scripted()
    futures = queue.submit(first, ["a"])
    assert begun.wait(10)
    futures += queue.submit(first, ["b", "c"]) + queue.submit(second, ["d", "e"])
    release.set()
    settled(futures)
    assert {text for request in second.requests for text in request} == {"d", "e"}


def test_room_is_left_for_two_requests_and_no_more() -> None:
    release = threading.Event()
    queue, embedder = made(embed_batch_max=8), Scripted(lambda _: release.wait(20) and None)
    try:
        assert queue.idle
        futures = []
        while queue.room > 0:
            futures += queue.submit(embedder, ["x" * 100])
            assert len(futures) < 100
        assert len(futures) >= 2 * 8
        assert not queue.idle
    finally:
        release.set()
    settled(futures)


def test_a_probe_waits_longer_after_each_failure_and_begins_again() -> None:
    embedder, asked = Scripted(), probe.Probe(20.0)
    embedder.away = True
    for _ in range(6):
        with pytest.raises(EmbedderUnavailable):
            asked.ask(embedder)
    assert embedder.probes == [3, 6, 12, 20, 3, 6]
    embedder.away = False
    asked.ask(embedder)
    asked.ask(embedder)
    assert embedder.probes[6:] == [12, 3]


def test_a_probe_never_waits_longer_than_a_request_may() -> None:
    embedder, asked = Scripted(), probe.Probe(1.0)
    embedder.away = True
    for _ in range(3):
        with pytest.raises(EmbedderUnavailable):
            asked.ask(embedder)
    assert embedder.probes == [1, 1, 1]
