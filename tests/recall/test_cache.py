from __future__ import annotations

import pytest

from hermes_memory_pgvector.recall import cache
from hermes_memory_pgvector.recall.cache import Remembered


def test_what_was_asked_for_longest_ago_makes_room() -> None:
    memory = Remembered[str, int](2)
    memory.put("a", 1)
    memory.put("b", 2)
    assert memory.get("a") == 1
    memory.put("c", 3)
    assert [memory.get(key) for key in "abc"] == [1, None, 3]


def test_what_is_too_old_is_forgotten_and_can_be_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(cache.time, "monotonic", lambda: now)
    memory = Remembered[str, int](2, age_s_max=60)
    memory.put("a", 1)
    now += 60
    assert memory.get("a") == 1
    now += 1
    assert memory.get("a") is None
    memory.put("a", 2)
    assert memory.get("a") == 2
