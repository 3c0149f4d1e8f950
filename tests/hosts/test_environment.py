"""What the plugin reads from the host around it, and what that costs a hook."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hermes_memory_pgvector.hosts import environment


class Finder:
    """Finds nothing, and counts what is looked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        self.names.append(name)
        if name.partition(".")[0] in ("agent", "gateway", "hermes_constants"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Finder]:
    """A process whose host lacks its modules."""
    finder = Finder()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    for name in [name for name in sys.modules if name.partition(".")[0] in ("agent", "gateway", "hermes_constants")]:
        monkeypatch.delitem(sys.modules, name)
    environment.host_module.cache_clear()
    yield finder
    environment.host_module.cache_clear()


def test_a_missing_module_of_the_host_is_looked_for_once(finder: Finder) -> None:
    for _ in range(5):
        assert environment.scrubber()("a text") == "a text"
        assert environment.hermes_home().is_absolute()
    assert finder.names == ["agent", "hermes_constants"]


def test_the_session_of_a_request_is_asked_for_without_an_import(
    finder: Finder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert environment.running("HERMES_SESSION_KEY") == ""
    # A thread of the host may be about to import it.
    gateway: Any = ModuleType("gateway.session_context")
    monkeypatch.setitem(sys.modules, "gateway.session_context", gateway)
    assert environment.running("HERMES_SESSION_KEY") == ""
    gateway.get_session_env = {"HERMES_SESSION_KEY": "garden"}.get
    assert environment.running("HERMES_SESSION_KEY") == "garden"
    assert environment.running("HERMES_SESSION_USER_ID") == ""
    assert finder.names == []


@pytest.mark.parametrize(
    ("module", "is_gateway"),
    [
        (None, False), (SimpleNamespace(), False), (SimpleNamespace(_gateway_runner_ref=lambda: None), False),
        (SimpleNamespace(_gateway_runner_ref=object), True),
    ],
    ids=["", "being imported", "in a terminal", "in a gateway"],
)  # fmt: skip
def test_a_terminal_that_has_imported_the_gateway_is_none(
    module: SimpleNamespace | None, is_gateway: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gateway.run", module)
    assert environment.in_gateway() == is_gateway


def test_a_gateway_that_was_started_as_a_module_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gateway.run", SimpleNamespace(_gateway_runner_ref=lambda: None))
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(_gateway_runner_ref=object))
    assert environment.in_gateway()
