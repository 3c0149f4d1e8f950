from __future__ import annotations

import inspect

import pytest

from hermes_memory_pgvector.errors import CheckpointFailed, SettingsError
from hermes_memory_pgvector.hosts.guard import guarded


@guarded(str)
def recall(query: str, *, session_id: str = "") -> str:
    """A hook."""
    if query == "wrong setting":
        raise SettingsError("pool_max is 99")
    if query:
        raise ValueError(query)
    return session_id


def test_an_error_becomes_the_fallback_and_a_warning_without_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="hermes.pgvector"):
        assert recall("my secret") == ""
        assert recall("wrong setting") == ""
        assert recall("", session_id="s1") == "s1"
    assert caplog.messages == ["recall failed with ValueError", "recall failed with SettingsError: pool_max is 99"]


def test_hosts_see_which_arguments_a_guarded_hook_takes() -> None:
    assert list(inspect.signature(recall).parameters) == ["query", "session_id"]


@guarded(str, raises=CheckpointFailed)
def compress(error: Exception) -> str:
    """A hook that may raise."""
    raise error


def test_a_hook_may_let_one_kind_of_error_through() -> None:
    with pytest.raises(CheckpointFailed):
        compress(CheckpointFailed("the disk is full"))
    assert compress(SettingsError("pool_max is 99")) == ""
