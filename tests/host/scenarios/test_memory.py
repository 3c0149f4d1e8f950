"""What the agent writes with the host's memory tool, or somebody into its files, is what the database holds."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import Call, ModelEndpoint, Request
from hostrig.rows import Rows

pytestmark = one_server

FACT = "The staging database listens on port 5433 of alpha."
MOVED = "The staging database listens on port 5440 of alpha."
LUNCH = "Lunch is at noon in the small kitchen."
TASTE = "Prefers short answers without headings."
ASKED = "Please look after your notes as we discussed, and tell me when it is done"


def add(content: str, target: str = "memory") -> Call:
    return Call("memory", {"action": "add", "target": target, "content": content})


def edit(old: str, new: str, whole: str) -> dict[str, str]:
    """An operation that changes `old` to `new`, as both hosts have it: one of them replaces the entry, one the span."""
    return {"action": "replace or patch", "old_text": old, "content": new, "whole": whole}


def as_the_host_has_it(request: Request, operation: dict[str, str]) -> dict[str, str]:
    """The tool's schema tells which of the two it is."""
    if operation["action"] != "replace or patch":
        return operation
    actions = request.tools["memory"]["properties"]["action"]["enum"]
    operation = dict(operation)
    whole = operation.pop("whole")
    return (
        {**operation, "action": "patch"} if "patch" in actions else {**operation, "action": "replace", "content": whole}
    )


def working_through(*calls: Call | dict[str, str] | list[dict[str, str]]) -> Any:
    """A script that makes these calls of the memory tool one after the other; a list is a batch."""

    def script(request: Request) -> Call | str:
        done = len(request.results)
        if done == len(calls):
            return "All of it is done now, and nothing else has changed."
        call = calls[done]
        if isinstance(call, Call):
            return call
        if isinstance(call, dict):
            return Call("memory", {"target": "memory", **as_the_host_has_it(request, call)})
        return Call("memory", {"target": "memory", "operations": [as_the_host_has_it(request, one) for one in call]})

    return script


def written_elsewhere(rows: Rows, *contents: str) -> None:
    """Entries of the same theme that another home has."""
    with psycopg.connect(rows.dsn) as connection:
        for content in contents:
            connection.execute(
                "INSERT INTO memory_entries (agent_identity, home, target, content) "
                "VALUES ('default', 'another', 'memory', %s)", [content]
            )  # fmt: skip


def test_both_targets_are_mirrored_and_a_new_session_gets_them(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    model.says([add(FACT), add(TASTE, "user")])
    hermes.ask(ASKED)
    rows.wait(lambda rows: len(rows.entries()) == 2, timeout_s=5)
    assert rows.entries("memory") == hermes.entries("memory") == [FACT]
    assert rows.entries("user") == hermes.entries("user") == [TASTE]
    assert rows("SELECT count(*) AS n FROM memory_entries WHERE embedding IS NULL")[0].n == 0
    hermes.ask("On which port of alpha does the staging database listen?")
    request = model.requests[-1]
    assert FACT in request.system
    assert FACT not in "".join(request.recalled)
    assert sorted(rows.entries()) == sorted([FACT, TASTE])


def test_changes_and_removals_touch_the_entry_that_was_meant_and_no_other(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    elsewhere = ["Somebody else noted port 5433, too.", "Lunch with Anna is on Friday.", LUNCH + " Bring a cup."]
    written_elsewhere(rows, *elsewhere)
    model.script = working_through(
        add(FACT), add(LUNCH), edit("5433", "5440", MOVED), {"action": "remove", "old_text": "Lunch"}
    )
    hermes.ask(ASKED)
    rows.wait(lambda rows: MOVED in rows.entries())
    assert hermes.entries("memory") == [MOVED]
    assert sorted(rows.entries()) == sorted([MOVED, *elsewhere])


@pytest.mark.slow
def test_a_change_in_a_later_process_is_told_apart_as_well(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    written_elsewhere(rows, "Somebody else noted port 5433, too.", "Lunch with Anna is on Friday.")
    model.script = working_through(add(FACT), add(LUNCH))
    hermes.ask(ASKED)
    model.script = working_through(edit("5433", "5440", MOVED))
    hermes.ask(ASKED)
    model.script = working_through({"action": "remove", "old_text": "Lunch"})
    hermes.ask(ASKED)
    rows.wait(lambda rows: MOVED in rows.entries())
    assert sorted(rows.entries()) == sorted(
        [MOVED, "Somebody else noted port 5433, too.", "Lunch with Anna is on Friday."]
    )


@pytest.mark.slow
def test_a_batch_is_mirrored_operation_by_operation(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    model.script = working_through(
        add(FACT),
        add(LUNCH),
        [
            {"action": "add", "content": "The boat sails at nine."},
            edit("5433", "5440", MOVED),
            {"action": "remove", "old_text": "Lunch"},
        ],
    )
    hermes.ask(ASKED)
    rows.wait(lambda rows: MOVED in rows.entries())
    assert sorted(rows.entries()) == sorted(hermes.entries("memory")) == sorted([MOVED, "The boat sails at nine."])


@pytest.mark.slow
def test_a_write_that_the_host_refuses_changes_nothing(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    twin = "The production database listens on port 5433 of alpha."
    model.script = working_through(
        add(FACT),
        add(twin),
        edit("no such text", "anything", "anything"),
        edit("5433", "5440", MOVED),
        {"action": "remove", "old_text": "database listens"},
        add("x " * 5000),
        [{"action": "add", "content": "Half of a batch that fails."}, {"action": "remove", "old_text": "no such text"}],
    )
    hermes.ask(ASKED)
    rows.wait(lambda rows: len(rows.turns()) == 2)
    assert sorted(rows.entries()) == sorted(hermes.entries("memory")) == sorted([FACT, twin])


@pytest.mark.main_host("a")
def test_a_line_deleted_by_hand_is_gone_in_the_next_session_and_a_new_one_is_there(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    written_elsewhere(rows, "Somebody else noted port 5433, too.")
    model.script = working_through(add(FACT), add(LUNCH))
    hermes.ask(ASKED)
    rows.wait(lambda rows: len(rows.entries()) == 3)
    hermes.write("memory", [LUNCH, "The boat sails at nine."])
    model.reset()
    hermes.ask("On which port of alpha does the staging database listen?")
    rows.wait(lambda rows: FACT not in rows.entries())
    assert sorted(rows.entries()) == sorted([LUNCH, "The boat sails at nine.", "Somebody else noted port 5433, too."])
    assert FACT not in "".join(model.requests[-1].recalled)


@pytest.mark.slow
def test_a_file_that_was_there_before_the_plugin_is_taken_over(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    hermes.write("memory", [FACT, LUNCH])
    hermes.write("user", [TASTE])
    hermes.ask("On which port of alpha does the staging database listen?")
    rows.wait(lambda rows: len(rows.entries()) == 3)
    assert rows.entries("user") == [TASTE]
    hermes.ask("On which port of alpha does the staging database listen?")
    hermes.elsewhere().ask("On which port of alpha does the staging database listen?")
    assert FACT in model.requests[-1].recalled[0]
    assert sorted(rows.entries()) == sorted([FACT, LUNCH, TASTE])
