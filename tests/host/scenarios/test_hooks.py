"""The hooks in orders that a host can bring about and a scenario cannot time, called by the host's own loader."""

from __future__ import annotations

from typing import Any

from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.rows import Rows

pytestmark = one_server

QUESTION = "Which mountain is the highest one of the Alps?"
ANSWER = "The highest one is Mont Blanc, with 4806 metres."
SAID = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]


def called(hook: str, *arguments: Any, **named: Any) -> tuple[str, list[Any], dict[str, Any]]:
    return hook, list(arguments), named


def begun(hermes: Hermes, session: str = "s1") -> tuple[str, list[Any], dict[str, Any]]:
    return called(
        "initialize", session, hermes_home=str(hermes.home), platform="cli", agent_context="primary",
        agent_identity="default",
    )  # fmt: skip


def test_a_replay_that_overtakes_its_turn_does_not_double_it(hermes: Hermes, rows: Rows) -> None:
    turn, replay = called("sync_turn", QUESTION, ANSWER, session_id="s1"), called("on_session_end", SAID)
    hermes.hooks(
        begun(hermes), called("on_turn_start", 1, QUESTION), replay, turn,
        # The same answer in a later turn is another turn.
        called("on_turn_start", 2, QUESTION), turn, called("on_session_end", SAID + SAID), called("shutdown"),
    )  # fmt: skip
    assert rows.said() == [QUESTION, ANSWER] * 2


def test_a_replay_keeps_what_was_missed_and_nothing_that_only_looks_like_an_answer(hermes: Hermes, rows: Rows) -> None:
    tried = {"role": "assistant", "content": "I will look it up in the atlas first.", "tool_calls": [{"id": "1"}]}
    summary = {
        "role": "assistant",
        "content": "[CONTEXT COMPACTION — REFERENCE ONLY] Mountains were discussed at length.",
    }
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    hermes.hooks(
        begun(hermes),
        called(
            "on_session_end", [SAID[0], summary, SAID[0], tried, {"role": "tool", "content": "4806"}, SAID[1], picture]
        ),
        called("on_session_end", [SAID[0], tried]),
        called("shutdown"),
    )
    assert rows.said() == [QUESTION, ANSWER]


def test_every_hook_can_be_called_before_the_beginning_and_after_the_end(hermes: Hermes, rows: Rows) -> None:
    hooks = [
        called("system_prompt_block"),
        called("on_turn_start", 1, QUESTION),
        called("prefetch", QUESTION),
        called("prefetch", QUESTION, session_id="s1"),
        called("queue_prefetch", QUESTION, session_id="s1"),
        called("recall_status"),
        called("sync_turn", QUESTION, ANSWER, session_id="s1", messages=SAID),
        called("on_memory_write", "add", "memory", ANSWER, metadata={"session_id": "s1"}),
        called("on_delegation", QUESTION, ANSWER, child_session_id="c1"),
        called("on_session_end", SAID),
        called("on_session_switch", "s2", parent_session_id="s1", reset=True, reason="new_session"),
        called("on_pre_compress", SAID),
        called("get_tool_schemas"),
        called("handle_tool_call", "recall_memory", {"query": "mountain"}),
        called("get_config_schema"),
        called("get_status_config", {}),
        called("backup_paths"),
        called("is_available"),
        called("unavailable_reason"),
    ]
    hermes.hooks(*hooks, called("shutdown"), begun(hermes), called("shutdown"), *hooks, called("shutdown"))
    assert rows.said() == []
    assert rows.entries() == []
