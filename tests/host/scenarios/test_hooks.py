"""The hooks in orders that a host can bring about and a scenario cannot time, called by the host's own loader."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.rows import Rows

from hermes_memory_pgvector.session.outages import REFUSED

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


@pytest.mark.main_host("a")
def test_no_hook_raises_when_a_setting_is_wrong(hermes: Hermes, rows: Rows) -> None:
    hermes.set(pool_max=99)
    told = called("unavailable_reason"), called("is_available")
    hooks = begun(hermes), called("system_prompt_block"), called("prefetch", QUESTION), called("get_tool_schemas")
    tool = called("handle_tool_call", "recall_memory", {"query": "mountain"})
    panels = called("backup_paths"), called("get_config_schema"), called("get_status_config"), called("shutdown")
    reason, available, *answers = hermes.hooks(*told, *hooks, tool, *panels)
    assert "pool_max" in reason
    assert not available
    assert answers[:6] == [None, "", "", [], json.dumps({"error": reason}), []]


@pytest.mark.main_host("a")
def test_no_hook_raises_for_an_argument_of_another_type(hermes: Hermes, rows: Rows) -> None:
    wrong = [
        called("initialize", "s1", hermes_home=7),
        begun(hermes),
        called("on_turn_start", 1, 7),
        called("prefetch", 7),
        called("sync_turn", 7, ANSWER),
        called("on_memory_write", "add", 7, 7),
        called("on_delegation", 7, ANSWER),
        called("on_session_end", 7),
        called("on_session_switch", [7]),
        called("on_pre_compress", 7),
        called("handle_tool_call", "recall_memory", 7),
        called("on_session_switch", "s2", parent_session_id="s1"),
    ]
    answers = hermes.hooks(*wrong, called("sync_turn", QUESTION, ANSWER, session_id="s2"), called("shutdown"))
    assert [answer for answer in answers if answer] == [answers[10]]
    assert "error" in json.loads(answers[10])
    assert rows.said()[-2:] == [QUESTION, ANSWER]


@pytest.mark.main_host("b")
def test_a_theme_that_is_not_allowed_recalls_nothing_and_an_operator_files_what_it_said(
    make_hermes: Callable[..., Hermes], rows: Rows
) -> None:
    hermes = make_hermes(allowed_themes=["garden"], tools="all")

    def as_theme(key: str, *hooks: tuple[str, list[Any], dict[str, Any]]) -> list[Any]:
        begin = called("initialize", "s", hermes_home=str(hermes.home), platform="api_server", gateway_session_key=key)
        return hermes.hooks(begin, *hooks, called("shutdown"))[1:-1]

    as_theme("garden", called("sync_turn", QUESTION, ANSWER, session_id="g"))
    assert rows.said("garden") == [QUESTION, ANSWER]
    asked = (
        called("prefetch", QUESTION, session_id="s"),
        called("on_pre_compress", SAID),
        called("handle_tool_call", "recall_conversation", {"query": QUESTION, "scope": "garden"}),
        called("handle_tool_call", "remember", {"content": "a typo must not become a theme"}),
    )
    fact = "The bridge over the river Aare in Aarberg is made of wood."
    hermes.write("memory", [fact])
    recalled, summary, found, remembered, *_ = as_theme(
        "gardn", *asked, called("sync_turn", "Is it of wood?", fact, session_id="s"),
        called("on_memory_write", "add", "memory", fact, metadata={}),
    )  # fmt: skip
    assert recalled.endswith(REFUSED)
    assert (as_theme("gardn", asked[0])[0], summary) == ("", "")
    assert "allowed_themes" in json.loads(found)["error"]
    assert "allowed_themes" in json.loads(remembered)["error"]
    assert "Mont Blanc" in as_theme("garden", asked[0])[0]
    assert {row.theme for row in rows.turns()} == {"garden"}
    assert rows.entries() == []
    filed = hermes.run("spool", "retry", "--all", "--theme", "garden", program="hermes-pgvector")
    assert filed.returncode == 0, filed.stdout + filed.stderr
    assert rows.said("garden")[2:] == ["Is it of wood?", fact]
    assert rows.entries(theme="garden") == [fact]
