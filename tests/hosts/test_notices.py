"""Notices go to the person where the host shows them, else to the model."""

from __future__ import annotations

import pytest

from hermes_memory_pgvector.hosts.notices import TO_PASS_ON, Notifier


class Agent:
    """What owns the callbacks of a host."""

    def __init__(self, *, muted: bool = False) -> None:
        self.suppress_status_output = muted
        self.warnings: list[str] = []
        self.statuses: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def status(self, text: str) -> None:
        self.statuses.append(text)

    def break_down(self, text: str) -> None:
        raise OSError("the terminal is gone")


def test_a_terminal_gets_warnings_and_good_news_and_the_model_nothing() -> None:
    agent = Agent()
    notifier = Notifier({"warning_callback": agent.warn, "status_callback": agent.status})
    assert notifier.tell([("away", False), ("back", True)]) == ""
    assert (agent.warnings, agent.statuses) == (["away"], ["back"])


def test_without_callbacks_the_model_gets_all_in_order() -> None:
    assert Notifier({}).tell([("away", False), ("back", True)]) == f"{TO_PASS_ON}away\n\n{TO_PASS_ON}back"
    assert Notifier({"warning_callback": None}).tell([]) == ""


def test_a_terminal_that_prints_nothing_is_none() -> None:
    agent = Agent(muted=True)
    assert Notifier({"warning_callback": agent.warn}).tell([("away", False)]) == TO_PASS_ON + "away"
    assert agent.warnings == []


def test_a_callback_that_fails_leaves_the_notice_to_the_model(caplog: pytest.LogCaptureFixture) -> None:
    assert Notifier({"warning_callback": Agent().break_down}).tell([("away", False)]) == TO_PASS_ON + "away"
    assert "OSError" in caplog.text
