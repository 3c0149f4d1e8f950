"""A full MEMORY.md is relieved: agents recall what left it, and the host's memory tool goes on with what is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import Call, ModelEndpoint, Request
from hostrig.rows import Rows

pytestmark = one_server

ROOMS = [
    "garage",
    "cellar",
    "attic",
    "kitchen",
    "stable",
    "barn",
    "library",
    "chapel",
    "armoury",
    "dairy",
    "pantry",
    "orchard",
    "workshop",
    "laundry",
]
NOTES = [
    f"The {room} is unlocked with key number {place * 11 + 20}, which hangs behind the {ROOMS[-place]} door on a hook."
    for place, room in enumerate(ROOMS, 1)
]
ASKED = "Please look after your notes as we discussed, and tell me when it is done"
DONE = "All of it is done now, and nothing else has changed."
NEW = "The garden gate is unlocked with key number 7."


def relieved(hermes: Hermes) -> list[str]:
    """Relieve MEMORY.md and return the entries that left it."""
    done = hermes.run("relieve", "--yes", "--json", program="hermes-pgvector")
    assert done.returncode == 0, done.stderr
    (file,) = json.loads(done.stdout)["files"]
    moved = [move["entry"] for move in file["moves"]]
    assert moved
    assert hermes.entries("memory") == [note for note in NOTES if note not in moved]
    return moved


def using_the_tool(*operations: dict[str, str]) -> Any:
    """A script of the model that makes these calls of the memory tool: `change` in the form that the host has."""

    def script(request: Request) -> Call | str:
        done = len(request.results)
        if done == len(operations):
            return DONE
        operation = {"target": "memory", **operations[done]}
        if operation["action"] == "change":
            patches = "patch" in request.tools["memory"]["properties"]["action"]["enum"]
            whole = operation.pop("whole")
            operation |= {"action": "patch"} if patches else {"action": "replace", "content": whole}
        return Call("memory", operation)

    return script


@pytest.mark.main_host("a")
def test_a_new_session_recalls_what_left_the_file_and_nothing_is_removed(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    hermes.write("memory", NOTES)
    hermes.ask("Good morning, please have a look at your notes about the keys of the house")
    rows.wait(lambda rows: sorted(rows.entries()) == sorted(NOTES))
    moved = relieved(hermes)
    room = ROOMS[NOTES.index(moved[0])]
    hermes.ask(f"With which key is the {room} unlocked?")
    request = model.requests[-1]
    assert moved[0] not in request.system
    assert moved[0] in "".join(request.recalled)
    assert hermes.entries("memory")[0] in request.system
    assert sorted(rows.entries()) == sorted(NOTES)
    kept = hermes.entries("memory")
    model.script = using_the_tool({"action": "add", "content": NEW}, {"action": "remove", "old_text": kept[1]})
    hermes.ask(ASKED)
    rows.wait(lambda rows: NEW in rows.entries() and kept[1] not in rows.entries())
    assert hermes.entries("memory") == [kept[0], *kept[2:], NEW]
    assert sorted(rows.entries()) == sorted({*NOTES, NEW} - {kept[1]})
    assert list(hermes.file("memory").parent.glob("*.bak*")) == []


@pytest.mark.slow
def test_a_running_session_goes_on_with_the_relieved_file(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    hermes.write("memory", NOTES)
    with hermes.chat() as chat:
        chat.ask("Good morning, please have a look at your notes about the keys of the house")
        rows.wait(lambda rows: sorted(rows.entries()) == sorted(NOTES))
        moved = relieved(hermes)
        kept = hermes.entries("memory")
        changed = kept[0].replace("on a hook", "on a nail")
        model.script = using_the_tool(
            {"action": "add", "content": NEW},
            {"action": "change", "old_text": f"{kept[0][-30:]}", "content": changed[-30:], "whole": changed},
            {"action": "remove", "old_text": kept[1]},
            {"action": "remove", "old_text": moved[0]},
        )
        chat.ask(ASKED)
        rows.wait(lambda rows: {NEW, changed} <= set(rows.entries()) and kept[1] not in rows.entries())
        assert hermes.entries("memory") == [changed, *kept[2:], NEW]
        model.script = lambda request: DONE
        chat.command("/new")
        chat.ask("Is everything in your notes about the keys as it was before?")
        chat.leave()
    hermes.ask(f"With which key is the {ROOMS[NOTES.index(moved[0])]} unlocked?")
    assert moved[0] in "".join(model.requests[-1].recalled)
    assert sorted(rows.entries()) == sorted({*NOTES, NEW, changed} - {kept[0], kept[1]})
    assert list(hermes.file("memory").parent.glob("*.bak*")) == []


@pytest.mark.slow
def test_another_home_of_the_theme_keeps_what_it_wrote(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    other = hermes.elsewhere()
    for each in (hermes, other):
        each.write("memory", NOTES)
        each.ask("Good morning, please have a look at your notes about the keys of the house")
    rows.wait(lambda rows: sorted(rows.entries()) == sorted(NOTES))
    moved = relieved(hermes)
    other.ask("Is everything in your notes about the keys as it was before?")
    assert other.entries("memory") == NOTES
    model.script = using_the_tool({"action": "remove", "old_text": moved[0]})
    other.ask(ASKED)
    hermes.ask(f"With which key is the {ROOMS[NOTES.index(moved[0])]} unlocked?")
    assert moved[0] in "".join(model.requests[-1].recalled)
    assert sorted(rows.entries()) == sorted(NOTES)


@pytest.mark.slow
def test_an_agent_relieves_its_file_when_a_person_approves_it(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows
) -> None:
    hermes = make_hermes({"memory": {"write_approval": True}}, tools="facts")
    facts = ["C[house.keys]: never leave the house", "V[house.code]: 4711 backwards"]
    hermes.write("memory", [*NOTES, *facts])
    hermes.ask("Good morning, please have a look at your notes about the keys of the house")
    rows.wait(lambda rows: len(rows.entries()) == len(NOTES) + 2)
    model.says(Call("memory_optimize", {}), DONE)
    hermes.ask(ASKED)
    model.says(Call("memory_optimize", {"dry_run": False}), DONE)
    hermes.ask(ASKED)
    assert "waits for approval" in model.requests[-1].results[-1]
    assert hermes.entries("memory") == [*NOTES, *facts]
    approved = hermes.run("pending", "approve", "--all", "--yes", "--json", program="hermes-pgvector")
    assert approved.returncode == 0, approved.stdout + approved.stderr
    assert len(json.loads(approved.stdout)["approved"]) == 1
    left = hermes.entries("memory")
    assert not set(facts) & set(left)
    assert {(fact.target, fact.content) for fact in rows("SELECT target, content FROM facts")} == {
        ("house.keys", "never leave the house"),
        ("house.code", "4711 backwards"),
    }
    model.says(Call("memory_search", {"query": "house code"}), DONE)
    hermes.ask("What is the code of the house? Please look it up in the facts that you keep")
    assert "4711 backwards" in model.requests[-1].results[-1]
    assert set(rows.entries()) == set(NOTES)
