from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from uuid import uuid4

import pytest

from hermes_memory_pgvector import background as module
from hermes_memory_pgvector.background import BackgroundExecutor, DeferredCalls
from hermes_memory_pgvector.errors import Unavailable


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A name of its own for the threads of a test, which are gone when it ends."""
    monkeypatch.setattr(module, "IDLE_S_MAX", 0.05)
    name = f"background-{uuid4().hex}"
    yield name
    wait_until_gone(name)


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def wait_until_gone(name: str) -> None:
    deadline = time.monotonic() + 20
    while threads(name):
        assert time.monotonic() < deadline, "idle threads stay"
        time.sleep(0.01)


def test_the_result_is_in_the_future(name: str) -> None:
    assert BackgroundExecutor(name, 1).submit(divmod, 17, 5).result(20) == (3, 2)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_an_exception_is_in_the_future_and_the_thread_goes_on(name: str, error: BaseException) -> None:
    executor = BackgroundExecutor(name, 1)

    def fail() -> None:
        raise error

    failed, later = executor.submit(fail), executor.submit(threading.get_ident)
    assert failed.exception(20) is error
    assert later.result(20)


def test_no_more_threads_run_than_allowed_and_calls_keep_their_order(name: str) -> None:
    executor = BackgroundExecutor(name, 2)
    hold = threading.Event()
    started: list[int] = []

    def call(number: int) -> int:
        started.append(number)
        assert hold.wait(20)
        return number

    futures = [executor.submit(call, number) for number in range(8)]
    deadline = time.monotonic() + 20
    while len(started) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert (sorted(started), len(threads(name))) == ([0, 1], 2)
    assert all(thread.daemon for thread in threads(name))
    hold.set()
    assert [future.result(20) for future in futures] == list(range(8))
    assert sorted(started) == list(range(8))


def test_one_thread_is_enough_for_calls_that_follow_each_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S_MAX", 0.5)
    executor = BackgroundExecutor(name, 4)
    idents = set()
    deadline = time.monotonic() + 20
    for _ in range(5):
        idents.add(executor.submit(threading.get_ident).result(20))
        while executor._running and time.monotonic() < deadline:
            time.sleep(0.001)
    assert len(idents) == 1


def test_idle_threads_end_and_the_next_call_starts_one(name: str) -> None:
    executor = BackgroundExecutor(name, 2)
    for _ in range(3):
        assert executor.submit(sum, [1, 2]).result(20) == 3
        assert threads(name)
        wait_until_gone(name)


def test_no_call_is_lost_when_threads_end_all_the_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S_MAX", 0.0005)
    executor = BackgroundExecutor(name, 8)
    futures = []
    for number in range(2000):
        futures.append(executor.submit(abs, -number))
        if number % 7 == 0:
            assert futures[-1].result(20) == number
            time.sleep(0.0007)
    assert [future.result(20) for future in futures] == list(range(2000))


def test_a_call_that_comes_as_the_last_thread_ends_is_run(name: str) -> None:
    executor = BackgroundExecutor(name, 1)
    executor.submit(abs, 1).result(20)
    deadline = time.monotonic() + 20
    while executor._running and time.monotonic() < deadline:
        time.sleep(0.001)
    ran = threading.Event()
    with executor._ready:
        time.sleep(0.3)  # the idle thread has given up, and waits for the lock to say so
        executor._calls.append(ran.set)
    assert ran.wait(20)


def test_a_cancelled_call_is_not_run(name: str) -> None:
    executor = BackgroundExecutor(name, 1)
    hold = threading.Event()
    first = executor.submit(hold.wait, 20)
    ran: list[int] = []
    second, third = executor.submit(ran.append, 2), executor.submit(ran.append, 3)
    assert second.cancel()
    hold.set()
    assert first.result(20)
    third.result(20)
    assert ran == [3]


@contextmanager
def no_thread_more() -> Iterator[None]:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def test_a_thread_that_cannot_be_started_is_tried_again(name: str) -> None:
    executor = BackgroundExecutor(name, 1)
    ran: list[int] = []
    with no_thread_more():
        assert isinstance(executor.submit(ran.append, 1).exception(0), Unavailable)
    assert executor.submit(abs, -2).result(20) == 2
    assert ran == []


def test_calls_run_on_the_threads_there_are_when_no_further_one_can_be_started(name: str) -> None:
    executor = BackgroundExecutor(name, 2)
    hold = threading.Event()
    first = executor.submit(hold.wait, 20)
    with no_thread_more():
        second = executor.submit(abs, -2)
    hold.set()
    assert (first.result(20), second.result(20)) == (True, 2)


class Text(str):
    """What a weak reference can be made to."""


def test_an_idle_thread_is_woken_and_keeps_nothing_of_its_last_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S_MAX", 3)
    executor = BackgroundExecutor(name, 1)
    begun = time.monotonic()
    for _ in range(3):
        text = Text("a text")
        there = weakref.ref(text)
        assert executor.submit(len, text).result(20) == 6
        del text
        while there() is not None and time.monotonic() < begun + 2.5:
            time.sleep(0.001)
        assert there() is None
    assert time.monotonic() < begun + 2.5


FORK = """
import importlib.abc, os, signal, sys, threading
from hermes_memory_pgvector.embedding import factory
from hermes_memory_pgvector.settings import Settings

begun, go_on = threading.Event(), threading.Event()

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "httpx" and threading.current_thread() is not threading.main_thread():
            begun.set()
            go_on.wait(20)

assert "httpx" not in sys.modules
sys.meta_path.insert(0, Slow())
settings = Settings(embed_url="http://127.0.0.1:1", embed_model="test")
threading.Thread(target=factory.build, args=(settings,), daemon=True).start()
assert begun.wait(20)
threading.Timer(0.2, go_on.set).start()
child = os.fork()
if child == 0:
    signal.alarm(20)
    factory.build(settings)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_that_is_forked_while_a_thread_imports_the_embedder_can_import_it() -> None:
    # Python 3.12 and newer warn of a fork beside threads.
    command = [sys.executable, "-P", "-W", "ignore::DeprecationWarning", "-c", FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fork_on_the_thread_that_imports_does_not_wait() -> None:
    with module.importing():
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            with module.importing():
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with module.importing():
        pass


def test_deferred_calls_are_made_once_in_order_and_in_the_context_of_who_added_them() -> None:
    chat, made, deferred = ContextVar("chat", default=""), list[str](), DeferredCalls()

    def note(what: str) -> None:
        made.append(f"{what} {chat.get()}")

    deferred.make_in_turn(note, "at once")
    chat.set("garden")
    deferred.add(note, "first")
    chat.set("kitchen")
    deferred.make_in_turn(note, "second")
    assert made == ["at once "]
    chat.set("cellar")
    deferred.make()
    deferred.make()
    assert made == ["at once ", "first garden", "second kitchen"]


def test_who_needs_deferred_calls_waits_for_those_that_another_thread_makes() -> None:
    deferred, begun, go_on, made = DeferredCalls(), threading.Event(), threading.Event(), list[str]()

    def slow() -> None:
        begun.set()
        assert go_on.wait(20)
        made.append("slow")

    deferred.add(slow)
    maker = threading.Thread(target=deferred.make)
    maker.start()
    assert begun.wait(20)
    waiter = threading.Thread(target=lambda: (deferred.make(), made.append("waiter")))
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive()
    go_on.set()
    maker.join(20)
    waiter.join(20)
    assert made == ["slow", "waiter"]


def test_a_deferred_call_that_fails_is_not_made_again() -> None:
    deferred, made = DeferredCalls(), list[str]()
    deferred.add(divmod, 1, 0)
    deferred.add(made.append, "next")
    with suppress(ZeroDivisionError):
        deferred.make()
    deferred.make()
    assert made == ["next"]
